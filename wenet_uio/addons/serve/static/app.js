/** The page: wires the parts together. */

import { showAbout } from "./about.js";
import { Dictation } from "./dictation.js";
import { listed, locale, say, startLanguage } from "./language.js";
import { LevelMeter } from "./level.js";
import { obstacle } from "./microphone.js";
import { Notices, noAnswer } from "./notices.js";
import { Recording } from "./recording.js";
import { startTheme } from "./theme.js";
import { shortClock } from "./times.js";
import { transcribe } from "./upload.js";
import { startTips } from "./words.js";

const find = (id) => document.getElementById(id);
const notices = new Notices(find("notices"));
const meter = new LevelMeter(find("level"));
const files = []; // files that wait, with their recordings
let health = null;
let dictation = null; // the open recording of the microphone
let isSending = false;

const LABELS = { idle: "start", starting: "starting", listening: "stop", finishing: "cancel" }; // keys of texts.js

/** @param {"idle" | "starting" | "listening" | "finishing"} name */
function setState(name, words) {
  find("speak").dataset.state = name;
  find("speak-label").textContent = say(LABELS[name]);
  find("state").textContent = words;
  if (name === "idle") {
    meter.clear();
    find("clock").textContent = "";
    dictation = null;
  }
}

function settings() {
  const lines = find("hot-words").value.split("\n").map((line) => line.trim());
  return { hotWords: lines.filter(Boolean), token: find("token").value, channel: find("channel").value };
}

function addRecording(title, fileName, onRemove) {
  const recording = new Recording(title, fileName, () => {
    onRemove();
    find("results").hidden = find("recordings").childElementCount === 0;
  });
  find("recordings").prepend(recording.element);
  find("results").hidden = false;
  return recording;
}

async function askHealth() {
  try {
    const answer = await fetch("health", { cache: "no-store" });
    health = await answer.json();
  } catch {
    notices.error("health", noAnswer());
    return;
  }
  notices.clear("health");
  find("model").textContent = health.model ?? "";
  find("token-field").hidden = !health.needs_token;
  sayWhetherItStreams(health);
  askAbout();
}

/** Ask what the model knows, which a server with a token tells only with the token. */
async function askAbout() {
  const { token } = settings();
  if (health?.needs_token && !token) return;
  try {
    const answer = await fetch("v1/models", { cache: "no-store", headers: token ? { Authorization: `Bearer ${token}` } : {} });
    if (answer.ok) showAbout(find("about"), (await answer.json()).data[0]);
  } catch {
    // What the page can do does not need it
  }
}

/** Why it does not stream is for whoever trains it: the log of the server has it. */
function sayWhetherItStreams({ streaming }) {
  notices.info("streaming", streaming === false ? say("comesLater") : "");
}

async function speak() {
  notices.clear("failure", "warning", "obstacle");
  if (!health) askHealth(); // the server did not answer when the page was opened
  setState("starting", say("waitingForMicrophone"));
  const { hotWords, token } = settings();
  const now = new Date();
  const time = now.toLocaleTimeString(locale, { hour: "2-digit", minute: "2-digit" });
  const stamp = [now.getFullYear(), now.getMonth() + 1, now.getDate(), now.getHours(), now.getMinutes()];
  const fileName = `recording-${stamp.map((part) => String(part).padStart(2, "0")).join("-")}`;
  let recording = null;
  const finish = (words, failure = "") => {
    recording.keepPartial();
    recording.progress = recording.segments.length ? shortClock(current.seconds) : say("noSpeech");
    recording.element.removeAttribute("data-live");
    if (failure && recording.segments.length === 0) recording.remove();
    notices.error("failure", failure);
    if (dictation === current) setState("idle", words);
  };
  const current = new Dictation(token ? { hot_words: hotWords, token } : { hot_words: hotWords }, {
    ready: (message) => {
      sayWhetherItStreams(message);
      if (!current.isStopping) setState("listening", say("listening"));
    },
    partial: (text) => recording.setPartial(text),
    final: (segment) => recording.addSegments([segment]),
    sound: (level) => {
      if (dictation !== current) return; // the last packet of an earlier recording
      meter.add(level);
      find("clock").textContent = shortClock(current.seconds);
    },
    warning: (key, words) => notices.info(key, words),
    stopping: (why) => {
      notices.error("warning", why);
      setState("finishing", say("waitingForWords"));
    },
    end: () => finish(say("done")),
    failure: (words) => finish(say("stopped"), words),
  });
  dictation = current;
  try {
    await current.open();
  } catch (error) {
    setState("idle", say("ready"));
    notices.error("failure", error.message);
    return;
  }
  setState("listening", say("connecting"));
  recording = addRecording(say("fromMicrophone", { time }), fileName, () => {
    if (dictation !== current) return;
    current.cancel();
    setState("idle", say("ready"));
  });
  recording.element.dataset.live = "";
  current.giveUp = () => {
    current.cancel();
    finish(say("stopped"));
  };
}

function press() {
  const { state } = find("speak").dataset;
  if (state === "idle") speak();
  if (state === "listening") dictation.stop();
  if (state === "finishing") dictation.giveUp();
}

function addFiles(list) {
  for (const file of list) {
    const abort = new AbortController();
    const recording = addRecording(file.name, file.name.replace(/\.[^.]+$/, ""), () => abort.abort());
    recording.progress = say("waiting");
    files.push({ file, recording, abort });
  }
  if (!isSending) sendFiles();
}

/** One file after the other. */
async function sendFiles() {
  isSending = true;
  while (files.length) {
    const { file, recording, abort } = files.shift();
    if (abort.signal.aborted) continue;
    const options = { ...settings(), mostBytes: health?.limits?.max_upload_bytes };
    try {
      const progress = (words) => (recording.progress = words);
      const gone = new Promise((resolve) => abort.signal.addEventListener("abort", () => resolve(null)));
      const show = (segment) => recording.addSegments([segment]);
      const answer = await Promise.race([transcribe(file, options, progress, show, abort.signal), gone]);
      if (!answer) continue;
      recording.progress = remarksOn(answer).join(" · ");
    } catch (error) {
      recording.progress = error.message;
      recording.element.dataset.failed = "";
      if (error.status === 401) find("token-field").hidden = false;
    }
  }
  isSending = false;
}

/** What is said of a recording that is transcribed. */
function remarksOn({ segments, duration, unspelled, cut_short: isCutShort }) {
  const remarks = [segments.length ? shortClock(duration) : say("noSpeech")];
  if (unspelled) remarks.push(say("unspelled", { words: listed(unspelled) }));
  if (isCutShort) remarks.push(say("cutShort"));
  return remarks;
}

function startDrop() {
  const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
  const show = (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    find("drop").hidden = false;
  };
  addEventListener("dragenter", show);
  addEventListener("dragover", show);
  addEventListener("dragleave", (event) => event.relatedTarget || (find("drop").hidden = true));
  addEventListener("drop", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    find("drop").hidden = true;
    addFiles(event.dataTransfer.files);
  });
}

startLanguage();
find("speak").addEventListener("click", press);
find("choose").addEventListener("click", () => find("file").click());
find("file").addEventListener("change", ({ target }) => {
  addFiles([...target.files]);
  target.value = ""; // the same file can be chosen again
});
find("token").addEventListener("change", askAbout);
const themes = { dark: say("dark"), light: say("light"), toDark: say("toDark"), toLight: say("toLight") };
startTheme(find("theme"), themes, () => meter.draw());
startTips(find("word-tip"), find("recordings"));
startDrop();
notices.info("obstacle", obstacle());
askHealth();
