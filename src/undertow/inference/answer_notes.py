"""What a reader must know of the answers of a run: when a server gave them, under which names, and which replies were cut off."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from undertow.types import AS_SERVED, STORED_EARLIER, TEXT, Answer, ModelIdentity


def answer_notes(
    identity: ModelIdentity, answers: Sequence[Answer], protocol: str, started_s: float
) -> tuple[list[str], list[str]]:
    """Notes for the provenance, and warnings for the page too. `started_s` is when the run began, in seconds since the epoch."""
    notes, warnings, n, prune = [], [], f"{len(answers):,}", f"`undertow cache prune -m {identity.key(protocol)[:16]}`"
    if identity.dtype == AS_SERVED:  # local weights have a hash, so that stored answers are theirs
        if times := [answer.stored_s for answer in answers if 0 < answer.stored_s < started_s]:
            first, last = (time.strftime("%Y-%m-%d %H:%M", time.gmtime(end(times))) for end in (min, max))
            when = f"at {first}" if first == last else f"from {first} to {last}"
            notes.append(
                f"{len(times):,} of {n} answers of {identity.name} {STORED_EARLIER}, {when} UTC; {prune} removes them"
            )
        names = Counter(answer.served_as for answer in answers if answer.served_as)
        if len(names) > 1:
            served = ", ".join(f"{name} ({n_of:,})" for name, n_of in names.items())
            warnings.append(
                f"The answers of {identity.name} were served under several names or fingerprints: {served}. If these are different "
                f"models, their results are mixed: remove the answers with {prune} and run again."
            )
    limits = [answer.cut_at_tokens for answer in answers if answer.cut_at_tokens]
    if limits and protocol == TEXT:
        limit = f"{min(limits):,}" + (f" to {max(limits):,}" if len(set(limits)) > 1 else "")
        warnings.append(
            f"{len(limits):,} of {n} replies of {identity.name} were cut off after {limit} tokens, so that only their finished "
            "sentences are read; raise --max-new-tokens if the model reads more."
        )
    return notes, warnings
