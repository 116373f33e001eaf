"""The HTTP side: an ASGI application over the latest samples, and a server that outlives hostile clients.

`app` answers, `landing` draws the page for people, `negotiation` reads what a client asks for. `gate` stands before
`app` and asks `passwords`; `security` keeps what `config_file` read and `tls` made of it. `listen` opens sockets,
`accept` takes connections from them, `protocol` guards one, `crowd` all of them, `server` runs it all.
"""
