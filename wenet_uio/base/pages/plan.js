/** Which rank takes which batch of a plan, for any number of ranks. */

/** What the planner does with the batches of an epoch: `EpochPlan.step` of wenet_uio/dataset/plan. */
export class Plan {
  /** @param data written by wenet_uio/prepare/diagnose/plan_page.py, which says what it holds */
  constructor(data) {
    this.data = data;
    this.total = data.total;
    this.shown = data.cost.length;
    this.places = new Map();
    let sample = 0;
    for (const [place, sizes] of data.pieces.entries()) {
      const batch = place < data.head ? place : data.total - data.pieces.length + place;
      const entries = data.entries?.[place] ?? [];
      this.places.set(batch, sizes.map((size, piece) => {
        const samples = Array.from({ length: size }, (_, number) => sample + number);
        sample += size;
        return { samples, entry: entries[piece] ?? 0 };
      }));
    }
  }

  /** Steps of each rank. A page that does not hold all batches shows complete steps. */
  steps(ranks) {
    return this.shown < this.total ? Math.floor(this.shown / ranks) : Math.ceil(this.total / ranks);
  }

  /** The batch of a rank in a step. `pieces` is null where the page does not hold the utterances. */
  cell(step, rank, ranks) {
    const first = step * ranks;
    if (first + ranks > this.total) return this.#shareOfLast(first, rank, ranks);

    const batch = first + rank;
    const { utterances, frames, padded, cost } = this.data;
    return {
      batch,
      isShare: false,
      pieces: this.places.get(batch)?.map((piece) => piece.samples) ?? null,
      utterances: utterances[batch],
      frames: frames[batch],
      padded: padded[batch],
      cost: cost[batch],
    };
  }

  /** The last step has fewer batches than ranks: its largest pieces are halved. */
  #shareOfLast(first, rank, ranks) {
    const key = `${first} ${ranks}`;
    if (this.lastKey !== key) {
      this.lastKey = key;
      this.lastShares = this.#sharesOfLast(first, ranks);
    }
    const pieces = this.lastShares[rank];
    const sizes = pieces.map((piece) => this.#measured(piece));
    const sum = (name) => sizes.reduce((total, size) => total + size[name], 0);
    return {
      batch: Math.min(first + rank, this.total - 1),
      isShare: true,
      pieces,
      utterances: sum("utterances"),
      frames: sum("frames"),
      padded: sum("padded"),
      cost: sum("cost"),
    };
  }

  #sharesOfLast(first, ranks) {
    const pieces = [];
    for (let batch = first; batch < this.total; batch += 1) pieces.push(...this.places.get(batch));
    const shares = this.#apart(pieces).map((part) => this.#sharedOut(part, ranks));
    if (shares.length === 1) return shares[0];

    return Array.from({ length: ranks }, (_, rank) => {
      const all = shares.flatMap((share) => share[rank]);
      const filled = all.filter((piece) => piece.length > 0);
      return filled.length > 0 ? filled : all.slice(0, 1);
    });
  }

  /** Pieces whose utterances are shared together: all, or those of each joined entry of a mixture. */
  #apart(pieces) {
    const samples = (part) => part.map((piece) => piece.samples);
    const filled = pieces.filter((piece) => piece.samples.length > 0);
    if (this.data.entries === null || filled.length === 0) return [samples(pieces)];

    const numbers = [...new Set(filled.map((piece) => piece.entry))].sort((one, two) => one - two);
    return numbers.map((number) => samples(filled.filter((piece) => piece.entry === number)));
  }

  /** `share_out` of wenet_uio/dataset/plan/groups.py. */
  #sharedOut(pieces, count) {
    const cheapness = (batch) => -batch.reduce((total, piece) => total + this.#measured(piece).cost, 0);
    const size = (batch) => batch[0].length;
    const batches = pieces.map((piece) => [piece]);

    if (batches.length > count) batches.sort((one, two) => cheapness(one) - cheapness(two));
    while (batches.length > count) {
      insert(batches, batches.pop(), cheapness);
      const [second, cheapest] = batches.splice(-2);
      batches.push([...second, ...cheapest]);
    }

    if (batches.length < count) batches.sort((one, two) => size(one) - size(two));
    while (batches.length < count) {
      for (const half of batches.splice(-2)) insert(batches, half, size);
      const [largest] = batches.pop();
      const middle = Math.floor((largest.length + 1) / 2);
      batches.push([largest.slice(0, middle)], [largest.slice(middle)]);
    }
    return batches;
  }

  #measured(samples) {
    const { lengths, units } = this.data;
    let longest = 0, largest = 0, frames = 0;
    for (const sample of samples) {
      longest = Math.max(longest, lengths[sample]);
      largest = Math.max(largest, units[sample]);
      frames += lengths[sample];
    }
    return {
      utterances: samples.length,
      frames,
      padded: samples.length * longest,
      cost: samples.length * largest,
    };
  }
}

/** Put an item into a sorted list, after equal ones. */
function insert(list, item, key) {
  let place = list.length;
  while (place > 0 && key(list[place - 1]) > key(item)) place -= 1;
  list.splice(place, 0, item);
}
