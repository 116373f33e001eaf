"""The HTTP side: an ASGI application over the latest samples, and a server that outlives hostile clients.

`app` answers, `status` judges what was sampled, `page` draws it for people, `shared` gives all who ask at a time one
answer, `negotiation` reads what a client asks for. `gate` stands before `app` and asks `passwords`; `security` keeps
what `config_file` read and `tls` made of it. `listen` opens sockets, `accept` takes connections from them, `protocol`
guards one, `crowd` all of them, `server` runs it all.
"""
