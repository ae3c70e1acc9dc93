"""Signed URLs of objects in Alibaba Cloud OSS, which are read as any other HTTP URL.

The fsspec driver of oss:// is used for globs and uploads only: it lists a whole folder to tell the
size of an object, counts the end of a byte range in another way than fsspec, and takes the whole
object for a range that it cannot have.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from wenet_uio.base.uris import shown
from wenet_uio.dataset.storage.settings import OssSettings, oss_settings
from wenet_uio.dataset.storage.versions import DriverError

VALID = 86_400
"""Seconds for which a URL is valid; long enough for clocks that differ."""


def signed_url(uri: str, method: str) -> str:
    """Return the URL by which an object of `oss://bucket/key` is requested with an HTTP method.

    Raises:
        DriverError: OSS_ENDPOINT is not set, or the package oss2 is not installed.
    """
    settings = oss_settings()
    if not settings.endpoint:
        raise DriverError(
            f"{shown(uri)}: set OSS_ENDPOINT, such as https://oss-cn-hangzhou.aliyuncs.com"
        )

    bucket, _, key = uri.removeprefix("oss://").partition("/")
    try:
        return _bucket(bucket, settings).sign_url(method, key, VALID, slash_safe=True)
    except ImportError as error:
        lacking = f"oss:// needs a driver that is not installed ({error}); pip install ossfs"
        raise DriverError(f"{shown(uri)}: {lacking}") from None
    except Exception as error:  # oss2 refuses the endpoint, or the name of the bucket or object
        raise DriverError(f"{shown(uri)}: {shown(error)}") from None


@lru_cache(16)
def _bucket(name: str, settings: OssSettings) -> Any:
    """Return the client of a bucket; without a key, for anonymous access."""
    import oss2  # pyright: ignore[reportMissingImports] - an extra

    if not settings.key:
        auth = oss2.AnonymousAuth()
    elif settings.token:
        auth = oss2.StsAuth(
            settings.key, settings.secret, settings.token, auth_version=settings.signature
        )
    else:
        auth = oss2.make_auth(settings.key, settings.secret, settings.signature)

    return oss2.Bucket(auth, settings.endpoint, name, region=settings.region or None)
