"""What goes wrong with the hub, told in words a person can act on."""

from collections.abc import Iterator
from contextlib import contextmanager

from services.weights.model_files import FETCH, UnreachableError, WeightsError


@contextmanager
def hub_errors_in_words(model_id: str, endpoint: str, file_name: str = "") -> Iterator[None]:
    """Turn the client's errors into ours.

    Raises:
        UnreachableError: the network failed, or what answered is no hub.
        WeightsError: the hub answered, and refused.
    """
    import httpx2
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, OfflineModeIsEnabled

    what = f"fetching {file_name} from {endpoint}" if file_name else f"asking {endpoint}"
    try:
        yield
    except GatedRepoError:
        raise WeightsError(
            f"{model_id} is gated: accept its terms on {endpoint}/{model_id}, then set HF_TOKEN "
            f"to a token of that account and run `{FETCH}` again."
        ) from None
    except HfHubHTTPError as error:
        raise _refused(model_id, endpoint, error.response.status_code, what) from None
    except OfflineModeIsEnabled:
        raise UnreachableError("HF_HUB_OFFLINE is set, so the hub is not asked.") from None
    except (TimeoutError, httpx2.TimeoutException):
        raise UnreachableError(f"No answer in time while {what}.{_kept(file_name)}") from None
    except (httpx2.TransportError, httpx2.InvalidURL) as error:
        raise UnreachableError(
            f"The connection failed while {what} ({str(error) or type(error).__name__})."
            f"{_kept(file_name)}"
        ) from None
    except ValueError:
        raise UnreachableError(f"What answered is no hub (while {what}).") from None
    except OSError as error:
        if error.errno is not None:
            raise  # of the disk; the client's own, of a body that is too short, has no number
        raise UnreachableError(f"The connection was cut while {what}.{_kept(file_name)}") from None


def _refused(model_id: str, endpoint: str, status: int, what: str) -> WeightsError:
    if status == 404:
        return WeightsError(f"{endpoint} has no model {model_id}. Is AIO_MODEL spelt right?")
    if status == 401:
        # The hub says so of models that don't exist too, to those it doesn't know.
        return WeightsError(
            f"{endpoint} does not give out {model_id} (status 401): it does not exist, or it is "
            "private and HF_TOKEN must be set to a token that may read it, or that token is wrong."
        )
    return UnreachableError(f"Status {status} while {what}.")


def _kept(file_name: str) -> str:
    if not file_name:
        return ""
    return f" What was fetched is kept; `{FETCH}` goes on from there."
