"""A small server to try fencing.py with: PUT keeps a text under its path, GET returns it. shop.py PORT [DATABASE]"""

import sys
from wsgiref.simple_server import make_server

from fencing import Fencing

texts = {}


def shop(environ, start_response):
    path = environ["PATH_INFO"]
    if environ["REQUEST_METHOD"] == "PUT":
        texts[path] = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
    return [texts.get(path, b"nothing")]


port, database = int(sys.argv[1]), sys.argv[2:]
app = Fencing(shop, database[0]) if database else shop
with make_server("127.0.0.1", port, app) as server:
    print(f"listening on 127.0.0.1:{server.server_port}", flush=True)
    server.serve_forever()
