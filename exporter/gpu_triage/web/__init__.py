"""The HTTP side: a web application over the latest samples, and a server that outlives hostile clients.

From the socket inwards: `listen` opens sockets, `server` accepts from them, `connection` speaks HTTP with one client,
over `tls_transport` where TLS is on, `crowd` bounds all of them. `security` keeps what `config_file` read and `tls`
made of it, and its gate asks `passwords`; then `app` answers from its source, `front`; `page` draws for people.
"""
