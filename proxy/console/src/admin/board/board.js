// Keeps the lock board up to date: puts newer parts of the page in the place of older ones, and
// keeps ages and remaining TTLs going between them. The page is complete without it.
"use strict";

const body = document.body;
const state = document.getElementById("live-state");
const pause = document.getElementById("pause");

/** What the proxy's clock is ahead of this one, ms. */
let ahead = Number(body.dataset.now) - Date.now();
let source = null;
let paused = false;
let heard = false;
/** Parts that came while somebody was marking text in the older ones. */
const waiting = new Map();

/** As `in_words` of lockwarden-lock says it. */
function duration(ms) {
  const seconds = Math.floor(ms / 1000);
  const two = (number) => String(number).padStart(2, "0");
  const both = (whole, unit, rest, ofRest) => `${whole} ${unit}` + (Number(rest) === 0 ? "" : ` ${rest} ${ofRest}`);
  if (seconds < 1) return `${Math.floor(ms)} ms`;
  if (seconds < 10) return `${seconds}.${Math.floor((ms % 1000) / 100)} s`;
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return both(Math.floor(seconds / 60), "min", two(seconds % 60), "s");
  if (seconds < 86400) return both(Math.floor(seconds / 3600), "h", two(Math.floor(seconds / 60) % 60), "min");
  return both(Math.floor(seconds / 86400), "d", Math.floor(seconds / 3600) % 24, "h");
}

function tick() {
  const now = Date.now() + ahead;
  for (const element of document.querySelectorAll("[data-since]")) {
    element.textContent = duration(Math.max(0, now - Number(element.dataset.since)));
  }
  for (const element of document.querySelectorAll("[data-ends]")) {
    const left = Math.max(0, Number(element.dataset.ends) - now);
    element.lastElementChild.textContent = duration(left);
    element.firstElementChild.value = Math.min(left, element.firstElementChild.max);
  }
}

/** Whether text inside an element is being marked. */
function marked(element) {
  const selection = document.getSelection();
  return selection && !selection.isCollapsed && selection.containsNode(element, true);
}

function replace(id, html) {
  const element = document.getElementById(id);
  if (!element) return;
  if (marked(element)) {
    waiting.set(id, html);
    return;
  }
  waiting.delete(id);
  const open = [...element.querySelectorAll("details[open]")].map((details) => details.dataset.keep);
  const focus = element.contains(document.activeElement) ? place(document.activeElement, element) : null;
  const scrolled = [...element.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
  element.innerHTML = html;
  for (const details of element.querySelectorAll("details")) {
    details.open = open.includes(details.dataset.keep);
  }
  element.querySelectorAll(".scroll").forEach((box, at) => { box.scrollTo(...(scrolled[at] ?? [0, 0])); });
  if (focus) focus(element)?.focus({ preventScroll: true });
  offerCopies(element);
}

/** How to find an element again: by where it leads, or else by its place among its like. */
function place(active, part) {
  const href = active.getAttribute("href");
  if (href) return (newer) => [...newer.querySelectorAll("a")].find((link) => link.getAttribute("href") === href);
  const at = [...part.querySelectorAll(active.localName)].indexOf(active);
  return (newer) => newer.querySelectorAll(active.localName)[at];
}

function say(text, live = false) {
  if (state.textContent !== text) state.textContent = text;
  state.toggleAttribute("data-live", live);
}

function listen() {
  source = new EventSource(body.dataset.events);
  source.onmessage = (event) => {
    const news = JSON.parse(event.data);
    ahead = news.now - Date.now();
    heard = true;
    for (const [id, html] of Object.entries(news.parts)) replace(id, html);
    tick();
  };
  source.onopen = () => say("Live", true);
  source.onerror = () => {
    // An answer that came to its end is asked for again by the browser, at once.
    if (source.readyState !== EventSource.CLOSED) {
      setTimeout(() => {
        if (!paused && source.readyState !== EventSource.OPEN) say("Connection lost: trying again");
      }, 3000);
      return;
    }
    say(heard ? "Connection lost: trying again" : "Not live: too many boards are open, trying again");
    setTimeout(() => { if (!paused) listen(); }, 5000);
  };
}

function offerCopies(root) {
  for (const button of root.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.onclick = async () => {
      const code = button.parentElement.querySelector("code");
      try {
        await navigator.clipboard.writeText(code.textContent);
        button.textContent = "Copied";
        setTimeout(() => { button.textContent = "Copy"; }, 2000);
      } catch {
        // Only secure pages may copy: mark it, so that one key does.
        document.getSelection().selectAllChildren(code);
        button.textContent = "Marked: copy it by Ctrl+C";
      }
    };
  }
}

// The page about discovery has nothing that goes on.
if (pause) {
  pause.hidden = false;
  pause.onclick = () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    if (paused) {
      source.close();
      say(`Paused at ${new Date(Date.now() + ahead).toISOString().slice(11, 19)} UTC`);
    } else {
      listen();
    }
  };
}

document.addEventListener("selectionchange", () => {
  if (paused || waiting.size === 0) return;
  for (const [id, html] of [...waiting]) replace(id, html);
  tick();
});

for (const field of document.querySelectorAll(".filter select, .filter input[type=checkbox]")) {
  field.onchange = () => field.form.requestSubmit();
}

offerCopies(document);
if (body.dataset.events) {
  listen();
  setInterval(() => { if (!paused) tick(); }, 500);
}
