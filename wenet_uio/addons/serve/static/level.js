/** Level meter: a strip of bars, one for each 100 ms, the newest at the right. */

import { say } from "./language.js";

const QUIETEST = -60; // dBFS; an empty bar
const BAR = 3; // CSS pixels
const STEP = 5;

export class LevelMeter {
  /** @param {HTMLCanvasElement} canvas with role="meter" */
  constructor(canvas) {
    this.canvas = canvas;
    this.clear();
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  /** @param {number} level in dBFS */
  add(level) {
    const most = Math.ceil(this.canvas.clientWidth / STEP);
    this.levels = [...this.levels, level].slice(-most);
    const value = Math.round(Math.max(QUIETEST, Math.min(0, level)));
    this.canvas.setAttribute("aria-valuenow", value);
    this.canvas.setAttribute("aria-valuetext", say("levelValue", { value }));
    this.draw();
  }

  clear() {
    this.levels = [];
    this.canvas.setAttribute("aria-valuenow", QUIETEST);
    this.canvas.setAttribute("aria-valuetext", say("levelOff"));
    this.draw();
  }

  draw() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.fillStyle = getComputedStyle(this.canvas).color;
    const bars = Math.ceil(width / STEP);
    for (let bar = 0; bar < bars; bar++) {
      const level = this.levels[this.levels.length - 1 - bar] ?? QUIETEST;
      const share = Math.max(0, Math.min(1, 1 - level / QUIETEST));
      const size = Math.max(2, share * height);
      pen.globalAlpha = share > 0 ? 1 : 0.35;
      pen.beginPath();
      pen.roundRect(width - bar * STEP - BAR, (height - size) / 2, BAR, size, BAR / 2);
      pen.fill();
    }
  }
}
