/** The explorer of a plan on its page, which has the class `Plan` of plan.js above this file. */

const GUTTER = 40, HEAD = 22, GAP = 3;
const LEAST_WIDTH = 10; // of a step at first: where the page has no room for all, it scrolls
const LISTED = 300;
const LEAST_PADDING_SCALE = 10; // percent: below this the colours would show differences of nothing

/** The grid of ranks and steps on a canvas, which draws what is seen, and the batch that is chosen. */
class Explorer {
  constructor(plan, part) {
    this.plan = plan;
    this.part = part;
    this.ranks = Math.min(plan.data.ranks, plan.data.most_ranks);
    this.chosen = { step: 0, rank: 0 };
    this.pointed = null;
    this.highest = LEAST_PADDING_SCALE;
    for (let batch = 0; batch < plan.shown; batch += 1) {
      this.highest = Math.max(this.highest, paddingOf(plan.data.frames[batch], plan.data.padded[batch]));
    }
    part("most-padding").textContent = `${Math.ceil(this.highest)} %`;
    part("ranks").max = plan.data.most_ranks;
    part("ranks").value = this.ranks;
    part("ranks").addEventListener("input", () => this.deal(Number(part("ranks").value)));
    for (const button of document.querySelectorAll("[data-ranks]")) {
      button.addEventListener("click", () => this.deal(Number(button.dataset.ranks)));
    }
    part("zoom").addEventListener("input", () => this.resize());

    this.grid = part("grid");
    this.canvas = part("canvas");
    this.grid.addEventListener("scroll", () => this.draw());
    this.grid.addEventListener("keydown", (event) => this.press(event));
    this.canvas.addEventListener("pointermove", (event) => this.point(this.at(event)));
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.canvas.addEventListener("click", (event) => {
      const cell = this.at(event);
      if (cell) this.choose(cell);
    });
    new ResizeObserver(() => this.resize()).observe(this.grid);
    addEventListener("theme", () => this.draw());
    const wide = this.grid.clientWidth - GUTTER - 4;
    part("zoom").value = Math.max(LEAST_WIDTH, Math.floor(wide / Math.max(1, plan.steps(this.ranks))));
    this.deal(this.ranks);
  }

  /** Deal the same batches to another number of ranks; the chosen batch stays chosen. */
  deal(ranks) {
    if (!Number.isInteger(ranks) || ranks < 1 || ranks > this.plan.data.most_ranks) return;

    const batch = this.plan.total ? this.cell(this.chosen).batch : 0;
    this.ranks = ranks;
    this.part("ranks").value = ranks;
    for (const button of document.querySelectorAll("[data-ranks]")) {
      button.setAttribute("aria-pressed", String(Number(button.dataset.ranks) === ranks));
    }
    const steps = this.plan.steps(ranks);
    const rest = this.plan.shown < this.plan.total ? 0 : this.plan.total % ranks;
    const last = rest
      ? ` The last step has ${count(rest, "batch", "batches")} for ${ranks} ranks: the largest are halved${this.untilAllHaveOne(steps - 1)}.`
      : "";
    this.part("dealt").textContent =
      `${count(this.plan.total, "batch", "batches")}, ${count(ranks, "rank")}: ` +
      `each rank takes ${count(Math.ceil(this.plan.total / ranks), "step")}.${last}`;
    this.chosen = { step: Math.min(Math.floor(batch / ranks), Math.max(0, steps - 1)), rank: batch % ranks };
    this.resize();
    this.choose(this.chosen);
  }

  /** How far the batches of the last step can be halved: an utterance is read by one rank. */
  untilAllHaveOne(step) {
    let without = 0;
    for (let rank = 0; rank < this.ranks; rank += 1) without += this.cell({ step, rank }).utterances === 0;
    return without
      ? `, and ${count(without, "rank")} ${without === 1 ? "has" : "have"} no utterance`
      : " until every rank has one";
  }

  cell({ step, rank }) {
    return this.plan.cell(step, rank, this.ranks);
  }

  get width() {
    return Number(this.part("zoom").value);
  }

  get height() {
    return this.ranks > 16 ? 18 : this.ranks > 8 ? 26 : 38;
  }

  resize() {
    const extent = this.part("extent");
    extent.style.width = `${GUTTER + this.plan.steps(this.ranks) * this.width + 2}px`;
    extent.style.height = `${HEAD + this.ranks * this.height + 2}px`;
    const scale = devicePixelRatio;
    const [width, height] = [this.grid.clientWidth, this.grid.clientHeight];
    Object.assign(this.canvas, { width: width * scale, height: height * scale });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    this.draw();
  }

  draw() {
    cancelAnimationFrame(this.frame);
    this.frame = requestAnimationFrame(() => this.paint());
  }

  paint() {
    const pen = this.canvas.getContext("2d");
    const [wide, high] = [this.grid.clientWidth, this.grid.clientHeight];
    const [left, top] = [this.grid.scrollLeft, this.grid.scrollTop];
    const steps = this.plan.steps(this.ranks);
    const style = getComputedStyle(this.grid);
    const calm = numbers(getComputedStyle(this.part("calm")).color);
    const hot = numbers(getComputedStyle(this.part("hot")).color);
    pen.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    pen.clearRect(0, 0, wide, high);

    const firstStep = Math.floor(left / this.width);
    const lastStep = Math.min(steps - 1, Math.floor((left + wide - GUTTER) / this.width));
    const firstRank = Math.floor(top / this.height);
    const lastRank = Math.min(this.ranks - 1, Math.floor((top + high - HEAD) / this.height));
    for (let step = firstStep; step <= lastStep; step += 1) {
      for (let rank = firstRank; rank <= lastRank; rank += 1) {
        const cell = this.cell({ step, rank });
        const [x, y] = this.corner({ step, rank });
        const full = this.height - GAP;
        const bar = Math.max(1, full * Math.min(1, cell.cost / this.plan.data.bound));
        const share = paddingOf(cell.frames, cell.padded) / this.highest;
        pen.fillStyle = `rgb(${calm.map((value, part) => Math.round(value + share * (hot[part] - value)))})`;
        pen.fillRect(x, y + full - bar, Math.max(1, this.width - (this.width > 4 ? 2 : 0)), bar);
      }
    }

    this.#paintLabels(pen, style, { wide, high, firstStep, lastStep, firstRank, lastRank });
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER - 3, HEAD - 3, wide, high);
    pen.clip();
    for (const [cell, color] of [[this.pointed, style.borderColor], [this.chosen, style.color]]) {
      if (!cell || !steps) continue;
      const [x, y] = this.corner(cell);
      pen.strokeStyle = color;
      pen.lineWidth = 2;
      pen.strokeRect(x - 2, y - 1, this.width + 2, this.height);
    }
    pen.restore();
  }

  #paintLabels(pen, style, { wide, high, firstStep, lastStep, firstRank, lastRank }) {
    pen.fillStyle = style.backgroundColor;
    pen.fillRect(0, 0, wide, HEAD);
    pen.fillRect(0, 0, GUTTER, high);
    pen.fillStyle = style.color;
    pen.font = `12px ${style.fontFamily}`;
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    const every = niceStep(56 / this.width);
    for (let step = Math.ceil(firstStep / every) * every; step <= lastStep; step += every) {
      const x = this.corner({ step, rank: 0 })[0] + this.width / 2;
      if (x > GUTTER) pen.fillText(step, x, HEAD / 2);
    }
    pen.textAlign = "right";
    for (let rank = firstRank; rank <= lastRank; rank += 1) {
      const y = this.corner({ step: 0, rank })[1] + this.height / 2;
      if (y > HEAD) pen.fillText(rank, GUTTER - 8, y);
    }
    pen.clearRect(0, 0, GUTTER, HEAD);
  }

  corner({ step, rank }) {
    return [
      GUTTER + step * this.width - this.grid.scrollLeft,
      HEAD + rank * this.height - this.grid.scrollTop,
    ];
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left - GUTTER, event.clientY - box.top - HEAD];
    const step = Math.floor((x + this.grid.scrollLeft) / this.width);
    const rank = Math.floor((y + this.grid.scrollTop) / this.height);
    const isInside = x >= 0 && y >= 0 && step < this.plan.steps(this.ranks) && rank < this.ranks;
    return isInside ? { step, rank } : null;
  }

  press(event) {
    const steps = this.plan.steps(this.ranks);
    const page = Math.max(1, Math.floor((this.grid.clientWidth - GUTTER) / this.width) - 1);
    const moves = {
      ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1],
      PageUp: [-page, 0], PageDown: [page, 0], Home: [-steps, 0], End: [steps, 0],
    };
    const move = moves[event.key];
    if (!move || event.ctrlKey || event.altKey || event.metaKey) return;

    event.preventDefault();
    this.choose({
      step: Math.max(0, Math.min(steps - 1, this.chosen.step + move[0])),
      rank: Math.max(0, Math.min(this.ranks - 1, this.chosen.rank + move[1])),
    });
  }

  choose(cell) {
    this.chosen = cell;
    this.pointed = null;
    if (!this.plan.steps(this.ranks)) return;

    const [x, y] = this.corner(cell);
    if (x < GUTTER) this.grid.scrollLeft += x - GUTTER;
    if (x + this.width > this.grid.clientWidth) this.grid.scrollLeft += x + this.width - this.grid.clientWidth;
    if (y < HEAD) this.grid.scrollTop += y - HEAD;
    if (y + this.height > this.grid.clientHeight) this.grid.scrollTop += y + this.height - this.grid.clientHeight;
    this.draw();
    this.tell(cell);
  }

  point(cell) {
    if (cell?.step === this.pointed?.step && cell?.rank === this.pointed?.rank) return;

    this.pointed = cell;
    this.draw();
    this.tell(cell ?? this.chosen);
  }

  /** Write what a batch holds below the grid. */
  tell({ step, rank }) {
    const cell = this.cell({ step, rank });
    const { data } = this.plan;
    const batch = cell.isShare ? "a share of the last batches" : `batch ${cell.batch}`;
    this.part("cell-name").textContent = `Step ${step}, rank ${rank}: ${batch}`;
    const split = cell.pieces?.length > 1 ? `, in ${cell.pieces.length} pieces` : "";
    this.part("cell-figures").textContent =
      `${count(cell.utterances, "utterance")}${split} · padding ${paddingOf(cell.frames, cell.padded).toFixed(1)} % · ` +
      `cost ${(100 * cell.cost / data.bound).toFixed(1)} % of the bound`;

    const list = this.part("utterances");
    list.replaceChildren();
    const samples = cell.pieces?.flat() ?? [];
    const longest = samples.reduce((most, sample) => Math.max(most, data.lengths[sample]), 1);
    for (const sample of samples.slice(0, LISTED)) {
      list.append(utterance(data, sample, longest));
    }
    const rest = samples.length - LISTED;
    this.part("unlisted").textContent = cell.pieces === null
      ? `This page holds the utterances of the first ${count(data.head, "batch", "batches")}.`
      : rest > 0 ? `and ${rest} more` : "";
  }
}

function utterance(data, sample, longest) {
  const item = document.createElement("li");
  const [bar, key, length] = ["span", "span", "span"].map((name) => document.createElement(name));
  bar.className = "bar";
  bar.style.width = `${100 * data.lengths[sample] / longest}%`;
  key.textContent = data.keys[sample];
  key.className = "key";
  const speed = data.speeds?.[sample] ?? 1;
  const seconds = (data.lengths[sample] * data.seconds_per_frame).toFixed(2);
  length.textContent = `${seconds} s${speed === 1 ? "" : ` at speed ${speed}`}`;
  item.append(key, length, bar);
  return item;
}

const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
const paddingOf = (frames, padded) => 100 * (padded - frames) / Math.max(1, padded);
const numbers = (color) => color.match(/[\d.]+/g).slice(0, 3).map(Number);

/** The smallest of 1, 2, 5, 10, 20, 50, … that is not below a number. */
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least);
}

const source = globalThis.document?.getElementById("plan-data");
if (source) {
  const plan = new Plan(JSON.parse(source.textContent));
  new Explorer(plan, (id) => document.getElementById(id));
}
