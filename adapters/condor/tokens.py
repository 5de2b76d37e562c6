"""Why HTCondor found no IDTOKEN that it may use: what can be seen of the folder where it looks."""

from pathlib import Path

GIVE = "give us a token of this pool (condor_token_create; its file must be ours and private)"


def advice(folder: Path | None, user: int) -> str:
    """What to do when a daemon accepted none of our credentials.

    Args:
        folder: ``htcondor.token_directory``; None where HTCondor's own configuration names one.
        user: our uid, whom HTCondor wants tokens to belong to.
    """
    if folder is None:
        return f"{GIVE}, and name its folder: htcondor.token_directory"
    try:
        owners = {file: file.stat().st_uid for file in sorted(folder.iterdir()) if file.is_file()}
    except OSError as error:
        return f"{folder}: {error.strerror} (we are uid {user}); under systemd LoadCredential= hands it over"
    if not owners:
        return f"{GIVE}: {folder} holds none"
    for file, owner in owners.items():
        if owner != user:
            return f"{file} belongs to uid {owner}, and HTCondor takes tokens of uid {user} alone, who we are"
    return GIVE
