"""The HTTP side: an ASGI application over the latest samples, and a server that outlives hostile clients.

`app` answers, `status` judges what was sampled, `page` draws it for people, `negotiation` reads what a client asks for,
`listen` opens sockets, `protocol` guards one connection, `server` runs them all.
"""
