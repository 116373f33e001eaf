"""HTTP: a web application that serves the latest samples, and a server that withstands hostile clients.

From the socket inward: `listen` opens sockets, `server` accepts connections, `connection` speaks HTTP with each client
and enforces limits for all, over `tls` with TLS. `security` holds the settings from `config_file`, and with them the
`passwords`, which `server` checks; then `app` responds with the latest samples and judgment; `page` renders HTML.
"""
