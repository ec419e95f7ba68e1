"""One cycle in moments: which tensors exist, where they came from, and where they go.

`frames` cuts one cycle of a recording (`eagle3.watch`) into moments, in the order in
which the engine reaches them. Frames are plain data; `eagle3.step_plots` draws them.
[Paper, section 3.1, Figure 5; moments and layout: Ours]
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from eagle3.plots import token_label
from eagle3.watch import Call, Recording, Shape, Sketch

ROWS = (
    "token",
    "l, m, h",
    "input x",
    "embedding e",
    "output a",
    "draft says",
    "target says",
)


@dataclass(frozen=True)
class Tile:
    """One row of a tensor, or one token, in the column of its position.

    label: ready to be shown
    state: "new" in this frame, "there" since an earlier one, "missing", "gone"; of
        tokens "committed", "pending", "drafted", "accepted", "rejected"
    side: "target" or "draft", whose it is
    sketch: of the vector, see `eagle3.watch.sketch`
    stand_in: it takes the place of a feature that does not exist

    [Ours]
    """

    label: str
    state: str
    side: str
    sketch: Sketch = ()
    stand_in: bool = False


@dataclass(frozen=True)
class Note:
    """A tensor that a frame brings: its name, its shape, and where it comes from."""

    name: str
    shape: Shape
    source: str


@dataclass(frozen=True)
class Frame:
    """One moment of a cycle.

    number, total: of this frame in its cycle        title: the move, in a few words
    words: what happens, in sentences
    positions: of the columns, without gap
    tiles: (row of `ROWS`, position) -> tile
    notes: the tensors that this moment brings
    caches: "target", "draft" -> (positions that stay, positions on trial)

    [Ours]
    """

    number: int
    total: int
    title: str
    words: str
    positions: tuple[int, ...]
    tiles: dict[tuple[str, int], Tile]
    notes: tuple[Note, ...]
    caches: dict[str, tuple[int, int]]

    @property
    def alt(self) -> str:
        """The frame in one line, for those who don't see it."""
        text = f"step {self.number} of {self.total}, {self.title}: {self.words}"
        tensors = "; ".join(
            f"{note.name} {list(note.shape)} from {note.source}" for note in self.notes
        )
        return f"{text} New: {tensors}." if tensors else text


def frames(recording: Recording, cycle: int = 1) -> tuple[Frame, ...]:
    """One cycle in about ten moments, from the features to the next catch-up.

    cycle: its number in the trace, from 1
    Raises ValueError for a cycle that is not in the recording or drafted nothing.
    [Paper, section 3.1, Figure 5; moments: Ours]
    """
    if not 1 <= cycle <= len(recording.cycles):
        raise ValueError(
            f"the recording has cycles 1 to {len(recording.cycles)}, not {cycle}."
        )
    scene = _Scene(recording, cycle)
    if not scene.row.drafted:
        raise ValueError(f"cycle {cycle} drafted nothing: choose one that did.")
    scene.target_has_run()
    scene.fuse()
    scene.catch_up()
    scene.guess()
    scene.restore()
    scene.verify()
    scene.decide()
    scene.commit()
    scene.catch_up_again()
    return scene.film.develop()


@dataclass
class _Film:
    """Frames in the making: the state of all tiles, and the shots so far."""

    positions: tuple[int, ...]
    caches: dict[str, tuple[int, int]]
    tiles: dict[tuple[str, int], Tile] = field(default_factory=dict)
    shots: list[tuple] = field(default_factory=list)

    def put(self, row: str, position: int, tile: Tile) -> None:
        """A tile outside the columns is not shown."""
        if position in self.positions:
            self.tiles[row, position] = tile

    def drop(self, rows: Sequence[str], positions: Iterable[int]) -> None:
        """These tensors are no longer kept: gone in the next shot, absent after it."""
        for place in [(row, i) for row in rows for i in positions]:
            tile = self.tiles.get(place)
            if tile and tile.state != "missing":
                self.tiles[place] = replace(tile, state="gone")

    def clear(self, row: str, position: int) -> None:
        """Remove a tile without a trace."""
        self.tiles.pop((row, position), None)

    def shoot(self, title: str, words: str, *notes: Note) -> None:
        self.shots.append((title, words, dict(self.tiles), notes, dict(self.caches)))
        left = {p: tile for p, tile in self.tiles.items() if tile.state != "gone"}
        self.tiles = {
            place: replace(tile, state="there") if tile.state == "new" else tile
            for place, tile in left.items()
        }

    def develop(self) -> tuple[Frame, ...]:
        total = len(self.shots)
        return tuple(
            Frame(i, total, title, words, self.positions, tiles, notes, caches)
            for i, (title, words, tiles, notes, caches) in enumerate(self.shots, 1)
        )


class _Scene:
    """One cycle of a recording and the film that is made of it.

    known: committed positions before the cycle, all in the target's cache
    fresh: those of them whose features the draft has not read
    end: committed positions after the cycle, where the newest token stands
    """

    def __init__(self, recording: Recording, cycle: int) -> None:
        self.recording, self.watched = recording, recording.cycles[cycle - 1]
        self.row = self.watched.row
        earlier = recording.cycles[cycle - 2] if cycle > 1 else None
        self.known = earlier.row.target_cache if earlier else recording.prompt_length
        draft_known = earlier.row.draft_cache if earlier else 0
        self.fresh = range(draft_known, self.known)
        self.end = self.known + self.row.emitted
        self.last_pass = earlier.calls[-1] if earlier else recording.prefill
        later = recording.cycles[cycle : cycle + 1]
        self.later = later[0] if later and later[0].of("layer") else None
        self.ended = cycle == len(recording.cycles)
        caches = {"target": (self.known, 0), "draft": (draft_known, 0)}
        self.film = _Film(self._columns(), caches)
        for i in range(self.known):
            self.film.put("token", i, self._token(i, "committed"))
        self.film.put("token", self.known, self._token(self.known, "pending"))

    def _columns(self) -> tuple[int, ...]:
        """From two known positions, or all fresh ones if they are few, to the last."""
        few = len(self.fresh) <= 5
        start = min(self.known - 2, self.fresh.start) if few else self.known - 2
        last = max(self.known + len(self.row.drafted), self.end)
        return tuple(range(max(0, start), last + 1))

    def text(self, position: int) -> str:
        """The token at a position as it is shown, drafted ones included."""
        if position < self.known:
            return token_label(self.recording.texts[position])
        own = (self.row.pending, *self.row.drafted)
        return token_label(own[position - self.known])

    def name(self, letter: str, text: str) -> str:
        """What a tensor is called, as 'g of can'."""
        return f"{letter} of {text.strip('␣') or text}"

    def of(self, letter: str, position: int) -> str:
        """What the tensor of the token at a position is called."""
        return self.name(letter, self.text(position))

    @property
    def newest(self) -> str:
        """The last token that the cycle emits."""
        index = self.row.emitted - 1
        kept = index < self.row.num_accepted
        token = self.row.drafted[index] if kept else self.row.next_token
        return token_label(token)

    def _token(self, position: int, state: str) -> Tile:
        return Tile(self.text(position), state, "target")

    def target_has_run(self) -> None:
        call, film, pending = self.last_pass, self.film, self.text(self.known)
        for i in self.fresh:
            seen = call.sketches[i - call.first]
            film.put("l, m, h", i, Tile(self.of("lmh", i), "new", "target", seen))
        film.put("l, m, h", self.known, Tile("none yet", "missing", "target"))
        film.put("target says", self.known - 1, Tile(pending, "new", "target"))
        count = len(self.fresh)
        film.shoot(
            "the target has run",
            f"Its last pass left {_rows(count)} of features that the draft has not "
            f"read. It chose {pending}, which is pending: the target has not run on "
            "it, so it has no features.",
            Note("l, m, h", (1, count, call.made[-1]), "the target's last pass"),
        )

    def fuse(self) -> None:
        (call,) = self.watched.of("fuse")
        for i in self.fresh:
            seen = call.sketches[i - self.fresh.start]
            self.film.put("input x", i, Tile(self.of("g", i), "new", "draft", seen))
        self.film.put("input x", self.known, Tile("no g", "missing", "draft"))
        self.film.drop(["l, m, h"], self.fresh)
        self.film.shoot(
            "fuse",
            "One matrix makes one feature g of the three taps of a position. "
            f"{self.text(self.known)} gets none.",
            Note("g", call.made, f"FC of l, m, h {list(call.given)}"),
        )

    def catch_up(self) -> None:
        call = self.watched.of("layer")[0]
        for i in self.fresh:
            self._layer(i, call)
        self.film.caches["draft"] = (self.known, 0)
        pair = f"({self.of('g', self.known - 1)}, {self.of('e', self.known)})"
        self.film.shoot(
            "catch up",
            "The draft's layer runs over all fresh features, each beside the embedding "
            f"of the next token. The last pair is {pair}. Its cache now reaches as far "
            "as the target's.",
            Note("e", call.given, "the embedding, one token ahead"),
            Note("a", call.made, "the draft's layer"),
        )

    def _layer(self, i: int, call: Call) -> None:
        """What the layer read and gave at position i, which it names after i + 1."""
        seen = call.sketches[i - call.first]
        self.film.put("embedding e", i, Tile(self.of("e", i + 1), "new", "target"))
        self.film.put("output a", i, Tile(self.of("a", i + 1), "new", "draft", seen))

    def guess(self) -> None:
        """One frame for each drafted token: its row of the layer, then the head."""
        heads, layers = self.watched.of("head"), self.watched.of("layer")
        self._first_guess(heads[0])
        for step in range(1, len(heads)):
            self._further_guess(step, layers[step], heads[step])

    def _first_guess(self, head: Call) -> None:
        self._says(self.known - 1, 0)
        self.film.shoot(
            "guess 1",
            f"The draft's head scores its {head.made[-1]:,} tokens from "
            f"{self.of('a', self.known)}. {self._taken(head, 0)}",
            Note("q", head.made, "the draft's norm and head"),
        )

    def _further_guess(self, step: int, layer: Call, head: Call) -> None:
        at, film = self.known + step - 1, self.film
        before = film.tiles["output a", at - 1]
        film.put("input x", at, replace(before, state="new", stand_in=True))
        self._layer(at, layer)
        self._says(at, step)
        film.caches["draft"] = (self.known, step)
        film.shoot(
            f"guess {step + 1}",
            f"There is no {self.of('g', at)}. The draft's own {self.of('a', at)} takes "
            f"its place, beside {self.of('e', at + 1)}. {self._taken(head, step)}",
            Note("x", layer.given, "the a of the guess before"),
            Note("a", layer.made, "the draft's layer"),
            Note("q", head.made, "the draft's norm and head"),
        )

    def _taken(self, head: Call, step: int) -> str:
        """Which token was guessed, and whether it was the draft's favourite."""
        token, best = self.text(self.known + 1 + step), token_label(head.choices[-1])
        if token == best:
            return f"Its favourite is {token}."
        return f"Its favourite is {best}, but {token} was taken, as a draw may."

    def _says(self, position: int, step: int) -> None:
        token = token_label(self.row.drafted[step])
        self.film.put("draft says", position, Tile(token, "new", "draft"))
        self.film.put("token", position + 2, Tile(token, "drafted", "draft"))

    def restore(self) -> None:
        film, count = self.film, len(self.row.drafted) - 1
        ran = range(self.fresh.start, self.known + count)
        film.drop(["input x", "embedding e", "output a"], ran)
        film.caches["draft"] = (self.known, 0)
        came = (
            f"{_rows(count).capitalize()} of keys and values came from a, not from g."
        )
        film.shoot(
            "restore the draft's cache",
            f"{came if count else 'No row was run on an a.'} The draft forgets what it "
            "guessed from before anybody knows which guesses are right. The guesses "
            "stay, as tokens.",
        )

    def verify(self) -> None:
        call, film = self.watched.calls[-1], self.film
        best = [token_label(text) for text in call.choices]
        for i, seen in enumerate(call.sketches):
            at = self.known + i
            film.put("l, m, h", at, Tile(self.of("lmh", at), "new", "target", seen))
            film.put("target says", at, Tile(best[i], "new", "target"))
        film.clear("input x", self.known)
        count, vocab = len(call.ids), self.recording.sizes[1]
        film.caches["target"] = (self.known, count)
        film.shoot(
            "verify",
            f"One pass of the target over the pending token and the guesses, "
            f"{_rows(count)}. They prefer {', '.join(best)}: each judges the token "
            "after it.",
            Note("p", (1, count, vocab), "the target's head"),
            Note("l, m, h", call.made, "the same pass"),
        )

    def decide(self) -> None:
        film, row, own = self.film, self.row, token_label(self.row.next_token)
        for i, token in enumerate(row.drafted):
            state = "accepted" if i < row.num_accepted else "rejected"
            tile = Tile(token_label(token), state, "draft")
            film.put("token", self.known + 1 + i, tile)
        film.shoot(
            "decide",
            f"{row.num_accepted} of {len(row.drafted)} guesses are accepted. "
            + {
                "bonus": f"The last row gives a bonus token, {own}.",
                "replacement": "The row that judged the first miss says what stands "
                f"there instead: {own}.",
            }[row.kind],
        )

    def commit(self) -> None:
        film, row, total = self.film, self.row, len(self.row.drafted)
        for i in range(self.known, self.end):
            film.put("token", i, self._token(i, "committed"))
        beyond = range(self.end, film.positions[-1] + 1)
        for i in beyond:
            film.clear("token", i)
        film.put("token", self.end, Tile(self.newest, "pending", "target"))
        film.drop(["l, m, h", "target says"], beyond)
        film.drop(["draft says"], film.positions)
        film.caches["target"] = (self.end, 0)
        forgotten = total + 1 - row.emitted
        what = f"forgets {_rows(forgotten)}" if forgotten else "keeps all rows"
        end = "ends the answer" if self.ended else "is pending"
        tokens = "1 token is" if row.emitted == 1 else f"{row.emitted} tokens are"
        film.shoot(
            "commit",
            f"{tokens} emitted, and as many rows stay: the target's cache {what}. The "
            "rows that stay leave features, those of accepted guesses too. "
            f"{self.newest} {end}.",
        )

    def catch_up_again(self) -> None:
        if self.later is None:
            return
        film, fuse, layer = self.film, self.later.of("fuse")[0], self.later.of("layer")
        committed = range(self.known, self.end)
        film.drop(["l, m, h"], committed)
        film.drop(["target says"], range(self.end - 1))
        for i in committed:
            at = i - layer[0].first
            following = self.text(i + 1) if i + 1 < self.end else self.newest
            g = Tile(self.of("g", i), "new", "draft", fuse.sketches[at])
            film.put("input x", i, g)
            e = Tile(self.name("e", following), "new", "target")
            film.put("embedding e", i, e)
            seen = layer[0].sketches[at]
            film.put(
                "output a", i, Tile(self.name("a", following), "new", "draft", seen)
            )
        film.put("input x", self.end, Tile("no g", "missing", "draft"))
        film.caches["draft"] = (self.end, 0)
        film.shoot(
            "catch up again",
            "The next cycle begins. Every position where a stood in has a real g now. "
            f"Only {self.newest}, the new pending token, has none.",
            Note("g", fuse.made, f"FC of l, m, h {list(fuse.given)}"),
            Note("a", layer[0].made, "the draft's layer"),
        )


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
