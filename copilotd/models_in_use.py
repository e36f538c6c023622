"""The models in use: loaded in the background, waited for by a question, calibrated on the user's documents."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from copilotd.embed.models import LocatedModel
from copilotd.errors import NEXT, Cancelled, ModelError, ModelLoading, UsageError
from copilotd.index.store import Store
from copilotd.query.gate import Calibration, load_calibrations
from copilotd.query.own_calibration import OwnCalibration, calibrate
from copilotd.query.own_calibration import load as load_calibration
from copilotd.query.own_calibration import save as save_calibration
from copilotd.types import Encoder, Progress, Reporter, Reranker
from copilotd.update.background import LoadEncoder, LoadReranker, ModelLoader
from copilotd.update.embedder import Embedder

LocateModel = Callable[[str], LocatedModel]

_PROGRESS_EVERY_S = 0.2


class Models:
    """Loads the models and hands them out.

    Args:
        folder: Where the calibration of another model is kept.
        names: The embedding model, and the reranking model or an empty string.
        locate: Finds a model on disk.
        load: Loads the embedding model.
        load_second: Loads the reranking model.
        on_error: Told what went wrong.

    Attributes:
        loader: Loads the embedding model.
        located: Where the embedding model is; None where it isn't found.
        reranker: The reranking model; None until it is loaded, or where none is set.
    """

    def __init__(
        self,
        folder: Path,
        names: tuple[str, str],
        *,
        locate: LocateModel,
        load: LoadEncoder,
        load_second: LoadReranker,
        on_error: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._rerank_model = names[1]
        self._locate_model = locate
        self._load_reranker = load_second
        self._note_error = on_error
        self.located, error = _locate(locate, names[0])
        self.loader = ModelLoader(self.located, error, load)
        self.reranker: Reranker | None = None
        self._own = load_calibration(folder)

    def start(self, embedder: Embedder) -> None:
        """Loads the models on a thread of their own; the embedder has the first as soon as it is there."""
        self._embedder = embedder
        self.loader.start(self._use, self._note_error)

    def _use(self, encoder: Encoder) -> None:
        """Called from the loading thread; a reranking model that can't be had is named, and nothing waits for it."""
        self._embedder.use(encoder)
        if not self._rerank_model:
            return
        found, error = _locate(self._locate_model, self._rerank_model)
        if found is None:
            self._note_error(f"Not reranked: {error}")
            return
        try:
            self.reranker = self._load_reranker(found)
        except ModelError as failure:
            self._note_error(f"Not reranked: {failure.message}")

    def wait_for_encoder(self, model_wait_s: float, reporter: Reporter) -> tuple[Encoder | None, list[str]]:
        """Waits for the model, so that nobody gets a false "I don't know" while it loads.

        Args:
            model_wait_s: How long at most, in seconds.
            reporter: Told that it waits.

        Returns:
            The encoder, or None and why there is none.

        Raises:
            ModelLoading: It was not ready in time.
            Cancelled: The client is gone.
        """
        if self._embedder.encoder is not None:
            return self._embedder.encoder, []
        until = time.monotonic() + model_wait_s
        while not self.loader.wait(_PROGRESS_EVERY_S):
            if reporter.cancelled():
                raise Cancelled("The question was cancelled.")
            reporter.progress(Progress("model", "Loading the embedding model…"))
            if time.monotonic() >= until:
                raise ModelLoading(
                    f"The embedding model was not ready after {model_wait_s:g} s.",
                    "ask again in a moment; copilot status shows the state, copilot search works by words meanwhile",
                )
        encoder = self._embedder.encoder
        return encoder, ([] if encoder is not None else [self.loader.words_only])

    def calibrate(self, store: Store, model_wait_s: float, reporter: Reporter) -> OwnCalibration:
        """Fits the gate for another embedding model on the documents indexed, and uses it from now on.

        Raises:
            UsageError: The bundled model needs none, or there are too few documents.
            ModelLoading: The embedding model was not ready within MODEL_WAIT_S.
            Cancelled: The client is gone.
        """
        encoder, notices = self.wait_for_encoder(model_wait_s, reporter)
        if encoder is None:
            raise UsageError(" ".join(notices) or "There is no embedding model to calibrate for.")
        if encoder.name == load_calibrations().model:
            raise UsageError(
                f"{encoder.name} is calibrated already: its coefficients come with the installation.",
                "set EMBED_MODEL to another model first",
            )

        def step(done: int, total: int) -> None:
            if reporter.cancelled():
                raise Cancelled("The question was cancelled.")
            reporter.progress(Progress("calibrate", f"{done} of {total} questions"))

        with store.read() as view:
            own = calibrate(view, encoder, view.chunk_ids(), step)
        save_calibration(own, self._folder)
        self._own = own
        return own

    def calibrated(self, encoder: Encoder | None) -> Calibration | None:
        """Returns the gate's coefficients fitted for this encoder on the user's documents, where there are any."""
        own = self._own
        return own.calibration if own and encoder and own.model == encoder.fingerprint else None


def _locate(locate: LocateModel, name: str) -> tuple[LocatedModel | None, str]:
    try:
        return locate(name), ""
    except ModelError as error:
        return None, f"{error.message}{NEXT}{error.hint}" if error.hint else error.message
