// Draws what Python sent and reports what a hand did. No number is computed here but
// where in a handle the pointer is: a key asks for a step, a pointer for a value.

const KEYS = {
  ArrowUp: ["by", 1], ArrowRight: ["by", 1], ArrowDown: ["by", -1],
  ArrowLeft: ["by", -1], PageUp: ["page", 1], PageDown: ["page", -1],
  Home: ["to", "low"], End: ["to", "high"],
};

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
  const share = Math.min(1, Math.max(0, handle.grows === "up" ? 1 - part : part));
  const steps = handle.high - handle.low;
  // A list has a row for each value; a height is a value between its two ends.
  const at = handle.grows === "up"
    ? Math.round(share * steps)
    : Math.min(steps, Math.floor(share * (steps + 1)));
  return { name: handle.name, to: handle.low + at };
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
    "aria-orientation": handle.grows === "right" ? "horizontal" : "vertical", "data-name": handle.name,
  };
  for (const [name, value] of Object.entries(says)) slider.setAttribute(name, value);
}

function newSlider(model, find) {
  const slider = document.createElement("div");
  slider.className = "eagle3-handle";
  slider.tabIndex = 0;
  slider.setAttribute("role", "slider");
  slider.addEventListener("keydown", (event) => {
    if (!(event.key in KEYS) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    model.send(keyMove(find(slider), event.key));
  });
  const point = (event) => {
    const move = pointerMove(find(slider), slider.getBoundingClientRect(), event);
    if (move.to !== slider.pointed) model.send(move);
    slider.pointed = move.to;
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

function render({ model, el }) {
  el.classList.add("eagle3-view");
  // Without this JupyterLab takes arrow keys for its own.
  el.dataset.lmSuppressShortcuts = "true";
  const trouble = document.createElement("p");
  trouble.className = "eagle3-trouble";
  trouble.setAttribute("role", "alert");
  const stage = document.createElement("div");
  stage.className = "eagle3-stage";
  const picture = document.createElement("div");
  const said = document.createElement("p");
  said.className = "eagle3-said";
  said.setAttribute("role", "status");
  stage.append(picture);
  el.append(trouble, stage, said);

  const sliders = new Map();
  const find = (slider) =>
    model.get("handles").find((handle) => handle.name === slider.dataset.name);
  const draw = () => {
    picture.innerHTML = model.get("svg");
    said.textContent = picture.firstElementChild?.getAttribute("aria-label") ?? "";
  };
  const arrange = () => {
    const handles = model.get("handles");
    const names = new Set(handles.map((handle) => handle.name));
    for (const [name, slider] of sliders) {
      if (!names.has(name)) { slider.remove(); sliders.delete(name); }
    }
    for (const handle of handles) {
      if (!sliders.has(handle.name)) {
        sliders.set(handle.name, newSlider(model, find));
        stage.append(sliders.get(handle.name));
      }
      place(sliders.get(handle.name), handle);
    }
  };
  const complain = () => { trouble.textContent = model.get("trouble"); };
  const events = [["change:svg", draw], ["change:handles", arrange],
    ["change:trouble", complain]];
  for (const [event, react] of events) { model.on(event, react); react(); }
  return () => { for (const [event, react] of events) model.off(event, react); };
}

export default { render };
