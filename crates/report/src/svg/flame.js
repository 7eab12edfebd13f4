// Zooms to a frame by a click, and marks frames by name or layer. Nothing is loaded from anywhere.
"use strict";
const svg = document.documentElement;
const LEFT = 10, WIDTH = svg.viewBox.baseVal.width - 2 * LEFT, LETTER = 6.7;
const status = document.getElementById("status");
const frames = Array.from(document.querySelectorAll("g.frame"), (g) => ({
  g, rect: g.querySelector("rect"), label: g.querySelector("text"),
  name: g.dataset.name, layer: g.dataset.layer,
  begin: Number(g.dataset.begin), samples: Number(g.dataset.samples), depth: Number(g.dataset.depth),
}));
const root = frames[0];
let marked = null;

function zoom(to) {
  const scale = WIDTH / to.samples;
  for (const frame of frames) {
    const end = frame.begin + frame.samples;
    const isBelow = frame.depth < to.depth && frame.begin <= to.begin && end >= to.begin + to.samples;
    const isAbove = frame.depth >= to.depth && frame.begin >= to.begin && end <= to.begin + to.samples;
    const width = isBelow ? WIDTH : frame.samples * scale;
    const x = isBelow ? LEFT : LEFT + (frame.begin - to.begin) * scale;
    const room = Math.floor((width - 3) / LETTER);
    const cut = room < 4 ? "" : frame.name.slice(0, room - 2) + "..";
    frame.g.style.display = (isBelow || isAbove) && width >= 0.2 ? "" : "none";
    frame.g.classList.toggle("below", isBelow);
    frame.rect.setAttribute("x", x);
    frame.rect.setAttribute("width", width);
    frame.label.setAttribute("x", x + 2);
    frame.label.textContent = frame.name.length <= room ? frame.name : cut;
  }
}

// Of a frame within a marked one the samples are counted already.
function mark(what, matches) {
  let samples = 0, end = 0;
  for (const frame of frames) {
    const isMarked = matches(frame);
    frame.g.classList.toggle("marked", isMarked);
    if (isMarked && frame.begin >= end) {
      samples += frame.samples;
      end = frame.begin + frame.samples;
    }
  }
  svg.classList.toggle("searched", what !== "");
  status.textContent = what && what + ": " + (100 * samples / root.samples).toFixed(1) + " % of the samples";
}

function reset() {
  marked = null;
  zoom(root);
  mark("", () => false);
}

function search() {
  const text = prompt("Name of a function, or a part of it (a regular expression; empty: none)", "");
  if (text === null) return;
  try {
    const pattern = new RegExp(text, "i");
    mark(text, (frame) => text !== "" && pattern.test(frame.name));
  } catch (error) {
    status.textContent = error.message;
  }
}

frames.forEach((frame) => frame.g.addEventListener("click", () => zoom(frame)));
document.querySelectorAll("g.layer").forEach((g) => g.addEventListener("click", () => {
  marked = marked === g.dataset.layer ? null : g.dataset.layer;
  mark(marked === null ? "" : g.textContent, (frame) => frame.layer === marked);
}));
document.getElementById("search").addEventListener("click", search);
document.getElementById("reset").addEventListener("click", reset);
addEventListener("keydown", (event) => {
  if (event.key === "/" || (event.key === "f" && event.ctrlKey)) { event.preventDefault(); search(); }
  if (event.key === "Escape") reset();
});
