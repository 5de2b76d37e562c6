"""FileCatalog plug-in for DIRAC: answers from a classad-hydrator daemon where data is. It never writes.

In the configuration (CS):

    Resources { FileCatalogs { HydratorCatalog {
      AccessType = Read
      Status = Active
      CatalogURL = https://hydrator.example.org:8471
      TokenFile = /etc/dirac/hydrator-token     # if the daemon requires tokens
      CACert = /etc/dirac/hydrator-ca.pem       # default: the CAs that the system trusts
      Scope = lofar                             # /a/b is lofar:a/b; default: /lofar/a/b is lofar:a/b
      StorageElements = UK:UK-Disk, NL:NL-Disk  # the SE of each site; default: the site's name
    } } }
"""

from DIRAC import S_ERROR, S_OK
from DIRAC.Resources.Catalog.FileCatalogClientBase import FileCatalogClientBase
from DIRAC.Resources.Catalog.Utilities import checkCatalogArguments
from hydrator_locality import LocalityClient, LocalityError

_USABLE = ("AVAILABLE",)
_ALL = ("AVAILABLE", "STAGING", "PARTIAL", "NEARLINE", "STUCK")


class HydratorCatalogClient(FileCatalogClientBase):
    """A catalogue with the datasets that the daemon polls; a DIRAC file is one dataset of the daemon.

    The daemon's own answer, with ages and estimates in seconds, is ``getLocality``.
    """

    READ_METHODS = [
        *FileCatalogClientBase.READ_METHODS,
        "isFile",
        "getReplicas",
        "getReplicaStatus",
        "getFileSize",
        "getLocality",
    ]

    def __init__(self, url=None, TokenFile=None, CACert=None, Scope=None, StorageElements="", **_):
        super().__init__()
        self._scope = Scope
        pairs = [pair.strip().partition(":") for pair in StorageElements.split(",") if pair.strip()]
        self._se_by_site = {site.strip(): se.strip() for site, _colon, se in pairs}
        environ = {"HYDRATOR_URL": url, "HYDRATOR_TOKEN_FILE": TokenFile, "HYDRATOR_CA_CERT": CACert}
        self._locality = LocalityClient.from_environment(environ)

    def isOK(self, timeout=120):
        """Return True: each call reports its own failure."""
        return S_OK(True)

    @checkCatalogArguments
    def exists(self, lfns):
        """Return, by LFN, whether any site has data of it."""
        return self._answer(lfns, lambda row, _: bool(row["sites"]))

    @checkCatalogArguments
    def isFile(self, lfns):
        """Return, by LFN, whether any site has data of it; a dataset counts as one file."""
        return self._answer(lfns, lambda row, _: bool(row["sites"]))

    @checkCatalogArguments
    def getReplicas(self, lfns, allStatus=False):
        """Return, by LFN, the storage elements with all its data on disk; with *allStatus*, others too."""
        states = _ALL if allStatus else _USABLE
        return self._answer(
            lfns,
            lambda row, lfn: {
                self._se(each["site"]): lfn for each in row["sites"] if each["state"] in states
            },
        )

    @checkCatalogArguments
    def getReplicaStatus(self, lfns):
        """Return the daemon's state (AVAILABLE, STAGING, …) of each LFN at the storage element in *lfns*."""

        def state_at(row, lfn):
            states = {self._se(each["site"]): each["state"] for each in row["sites"]}
            return states[lfns[lfn]]

        return self._answer(lfns, state_at)

    @checkCatalogArguments
    def getFileSize(self, lfns):
        """Return the bytes of each LFN."""

        def size(row, _):
            if row["bytes"] is None:
                raise KeyError("no catalogue knows the size")
            return row["bytes"]

        return self._answer(lfns, size)

    @checkCatalogArguments
    def getLocality(self, lfns):
        """Return the daemon's row for each LFN: state, share, bytes, age and seconds by site."""
        return self._answer(lfns, lambda row, _: row)

    def _answer(self, lfns, evaluate):
        """Return *evaluate* of each LFN's row. An unknown dataset is a failure, never a missing file."""
        lfn_by_did = {self._did(lfn): lfn for lfn in lfns}
        successful, failed = {}, {}
        try:
            for row in self._locality.find(lfn_by_did):
                lfn = lfn_by_did[row["did"]]
                if not row["polled"]:
                    failed[lfn] = "the daemon does not poll this dataset"
                elif row["unseen"] and not row["sites"]:
                    failed[lfn] = f"no catalogue answered: {row['unseen']}"
                else:
                    try:
                        successful[lfn] = evaluate(row, lfn)
                    except KeyError as error:
                        failed[lfn] = f"No such replica: {error.args[0]}"
        except LocalityError as error:
            return S_ERROR(str(error))
        return S_OK({"Successful": successful, "Failed": failed})

    def _did(self, lfn):
        path = lfn.lstrip("/")
        if self._scope:
            return f"{self._scope}:{path}"
        scope, _, name = path.partition("/")
        return f"{scope}:{name}"

    def _se(self, site):
        return self._se_by_site.get(site, site)
