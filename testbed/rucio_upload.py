"""Upload files with Rucio's own upload client: a program that reads its items as JSON from standard input.

The file in RUCIO_CONFIG names the server.
"""

import json
import logging
import sys

from rucio.client.uploadclient import UploadClient

if __name__ == "__main__":
    UploadClient(logger=logging.getLogger()).upload(json.load(sys.stdin))
