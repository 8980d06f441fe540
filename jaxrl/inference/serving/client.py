"""A client of `jaxrl serve`."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit


class Client:
    """One session with a server; not for several threads at once.

        with jaxrl.Client("http://127.0.0.1:8000") as client:
            client.reset()  # an episode begins
            while ...:
                action = client.act(obs)

    Args:
      url: of the server.
      token: the token that it asks for, if any.
      seconds: to wait for an answer.
    """

    def __init__(self, url: str = "http://127.0.0.1:8000", token: str = "", seconds: float = 30.0) -> None:
        place = urlsplit(url)
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        self._connection = kinds[place.scheme](place.hostname or "", place.port, timeout=seconds)
        self._headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {token}"} if token else {}
        )
        self.session: str | None = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection; the session stays until it was not used for long."""
        self._connection.close()

    def reset(self) -> None:
        """Begins an episode."""
        self.session = self._ask("/reset", {"session": self.session})["session"]

    def act(self, obs: Any, **more: Any) -> Any:
        """The action for an observation, in numbers and lists; `action_mask=...` if there are masks."""
        return self._ask("/act", {"session": self.session, "obs": obs, **more})["action"]

    def _ask(self, path: str, content: dict[str, Any]) -> Any:
        body = json.dumps({k: v for k, v in content.items() if v is not None}, default=lambda x: x.tolist())
        self._connection.request("POST", path, body, self._headers)
        response = self._connection.getresponse()
        answer = json.loads(response.read())
        if response.status != 200:
            raise RuntimeError(f"{path}: {answer['error']}")
        return answer
