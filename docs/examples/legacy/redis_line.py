"""The little Redis client of an old program: Python's standard library and nothing else."""

import socket


class RedisError(Exception):
    """Redis, or what stands in front of it, answered with an error."""


class Redis:
    def __init__(self, address, name=None):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)))
        self.replies = self.socket.makefile("rb")
        if name is not None:
            self("CLIENT", "SETNAME", name)

    def __call__(self, *words):
        request = b"*%d\r\n" % len(words)
        for word in words:
            word = str(word).encode()
            request += b"$%d\r\n%s\r\n" % (len(word), word)
        self.socket.sendall(request)
        return self.reply()

    def reply(self):
        line = self.replies.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("Redis hung up")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            raise RedisError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            length = int(rest)
            return None if length < 0 else self.replies.read(length + 2)[:-2].decode()
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        raise ConnectionError("Redis says %r" % line)
