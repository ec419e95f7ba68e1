// Draws what Python sent and reports what a hand did. No number is computed here but
// where in a handle the pointer is: a key asks for a step, a pointer for a value.

const KEYS = {
  ArrowUp: ["by", 1], ArrowRight: ["by", 1], ArrowDown: ["by", -1],
  ArrowLeft: ["by", -1], PageUp: ["page", 1], PageDown: ["page", -1],
  Home: ["to", "low"], End: ["to", "high"],
};
const SILENT = "No kernel answers yet. In the picture, mouse and arrow keys work " +
  "without one; the fields above it don't.";
const PATIENCE = 3000; // milliseconds until that is said

const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

// In a list that is read downwards, the arrow down means the next one.
function keyMove(handle, key) {
  const [kind, amount] = KEYS[key];
  if (kind === "to") return { name: handle.name, to: handle[amount] };
  const vertical = key !== "ArrowLeft" && key !== "ArrowRight";
  const sign = vertical && handle.grows === "down" ? -1 : 1;
  const size = kind === "page" ? handle.big_step : 1;
  return { name: handle.name, by: sign * amount * size };
}

function pointerMove(handle, box, event) {
  const part = handle.grows === "right"
    ? (event.clientX - box.left) / box.width
    : (event.clientY - box.top) / box.height;
  const share = clamp(handle.grows === "up" ? 1 - part : part, 0, 1);
  const steps = handle.high - handle.low;
  // A list has a row for each value; a height is a value between its two ends.
  const at = handle.grows === "up"
    ? Math.round(share * steps)
    : Math.min(steps, Math.floor(share * (steps + 1)));
  return { name: handle.name, to: handle.low + at };
}

function element(kind, className, role) {
  const made = document.createElement(kind);
  made.className = className;
  if (role) made.setAttribute("role", role);
  return made;
}

function place(slider, handle) {
  const [left, top, width, height] = handle.place;
  Object.assign(slider.style, {
    left: `${left}%`, top: `${top}%`, width: `${width}%`, height: `${height}%`,
  });
  const says = {
    "aria-label": handle.label, "aria-valuemin": handle.low,
    "aria-valuemax": handle.high, "aria-valuenow": handle.value,
    "aria-valuetext": handle.text,
    "aria-orientation": handle.grows === "right" ? "horizontal" : "vertical",
    "data-name": handle.name,
  };
  for (const [name, value] of Object.entries(says)) slider.setAttribute(name, value);
}

function newSlider(find, move) {
  const slider = element("div", "eagle3-handle", "slider");
  slider.tabIndex = 0;
  slider.addEventListener("keydown", (event) => {
    if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    move(keyMove(find(slider.dataset.name), event.key));
  });
  const point = (event) => {
    const handle = find(slider.dataset.name);
    const to = pointerMove(handle, slider.getBoundingClientRect(), event);
    if (to.to !== slider.pointed) move(to);
    slider.pointed = to.to;
  };
  slider.addEventListener("pointerdown", (event) => {
    slider.setPointerCapture(event.pointerId);
    slider.pointed = undefined;
    point(event);
  });
  slider.addEventListener("pointermove", (event) => {
    if (slider.hasPointerCapture(event.pointerId)) point(event);
  });
  return slider;
}

// Back, Play and Forward for a handle that is walked through in time.
function newButtons(name, find, move) {
  const row = element("div", "eagle3-buttons", "group");
  row.setAttribute("aria-label", `walk through: ${find(name).label}`);
  let timer;
  const button = (text, press) => {
    const made = element("button", "eagle3-button");
    made.type = "button";
    made.textContent = text;
    made.addEventListener("click", press);
    row.append(made);
    return made;
  };
  const stop = () => {
    clearInterval(timer);
    timer = undefined;
    play.textContent = "Play";
  };
  const step = (by) => () => { stop(); move({ name, by }); };
  button("Back", step(-1));
  const play = button("Play", () => {
    if (timer) return stop();
    const { low, high, value, pace } = find(name);
    move(value < high ? { name, by: 1 } : { name, to: low });
    play.textContent = "Pause";
    timer = setInterval(() => {
      const handle = find(name);
      if (!row.isConnected || !handle || handle.value >= handle.high) return stop();
      move({ name, by: 1 });
    }, pace);
  });
  button("Forward", step(1));
  return row;
}

function render({ model, el }) {
  el.classList.add("eagle3-view");
  // Without this JupyterLab takes arrow keys for its own.
  el.dataset.lmSuppressShortcuts = "true";
  const trouble = element("p", "eagle3-trouble", "alert");
  const walks = element("div", "eagle3-walks");
  const stage = element("div", "eagle3-stage");
  const picture = element("div", "eagle3-picture");
  const said = element("p", "eagle3-said", "status");
  const silent = element("p", "eagle3-silent", "note");
  stage.append(picture);
  el.append(trouble, walks, stage, silent, said);

  // What is shown: the kernel's picture, or one of those that it left behind.
  let shown = {};
  let answered = false;
  const sliders = new Map(), buttons = new Map();
  const find = (name) => shown.handles.find((handle) => handle.name === name);
  const move = (message) => {
    if (!find(message.name)) return;
    model.send(message);
    if (!answered) moveWithoutKernel(message);
  };
  const moveWithoutKernel = ({ name, by, to }) => {
    const { walked, pictures } = model.get("left_behind");
    if (name !== walked || !pictures.some(({ svg }) => svg === shown.svg)) return;
    const { low, high, value } = find(name);
    const next = pictures[clamp(to ?? value + by, low, high) - low];
    if (next.svg !== shown.svg) show(next);
  };
  const keep = (kept, names, make, parent) => {
    for (const [name, made] of kept) {
      if (!names.has(name)) { made.remove(); kept.delete(name); }
    }
    for (const name of names) {
      if (!kept.has(name)) { kept.set(name, make(name)); parent.append(kept.get(name)); }
    }
  };
  const show = (next) => {
    const fresh = next.svg !== shown.svg;
    shown = next;
    if (fresh) {
      picture.innerHTML = shown.svg;
      said.textContent = picture.firstElementChild?.getAttribute("aria-label") ?? "";
    }
    const all = new Set(shown.handles.map(({ name }) => name));
    const paced = shown.handles.filter(({ pace }) => pace > 0).map(({ name }) => name);
    keep(sliders, all, () => newSlider(find, move), stage);
    keep(buttons, new Set(paced), (name) => newButtons(name, find, move), walks);
    for (const handle of shown.handles) place(sliders.get(handle.name), handle);
  };
  const react = () => show({ svg: model.get("svg"), handles: model.get("handles") });
  const complain = () => { trouble.textContent = model.get("trouble"); };
  const hear = () => { answered = true; silent.textContent = ""; };
  const events = [["change:svg", react], ["change:handles", react],
    ["change:trouble", complain], ["msg:custom", hear]];
  for (const [event, does] of events) model.on(event, does);
  react();
  complain();
  const waiting = setTimeout(() => {
    if (!answered && model.get("left_behind").walked) silent.textContent = SILENT;
  }, PATIENCE);
  model.send({ is_anybody_there: true });
  return () => {
    clearTimeout(waiting);
    for (const [event, does] of events) model.off(event, does);
  };
}

export default { render };
