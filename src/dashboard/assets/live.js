// Staying up to date: the overview every two seconds, and the event stream beside it.
// Both rest while nobody can see the page, so that a forgotten tab costs the server nothing.

import { Trouble, events, get } from './api.js';

const EVERY_MS = 2000;
const SOON_MS = 200;
const LONGEST_POLL_MS = 10_000;
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 30_000;

export class Live {
  /** `on`: overview(object), events(array), state({poll, stream}). */
  constructor(on) {
    this.on = on;
    this.limit = 50;
    this.all = false;
    this.lastEvent = null;
    this.startedAt = null;
    this.state = { poll: 'starting', stream: 'starting', retryInS: 0 };
    this.running = null;
    this.misses = 0;
    document.addEventListener('visibilitychange', () => {
      if (!this.wanted) return;
      if (document.hidden) this.rest();
      else this.begin();
    });
  }

  start() {
    this.wanted = true;
    if (!document.hidden) this.begin();
  }

  stop() {
    this.wanted = false;
    this.lastEvent = null;
    this.startedAt = null;
    this.rest();
  }

  /** Asks for the overview now instead of at the next beat; soon after the answer, if one is being waited for. */
  refresh() {
    if (!this.running) return;
    this.hurry = true;
    if (!this.asking) this.poll(this.running);
  }

  begin() {
    if (this.running) return;
    this.running = new AbortController();
    this.poll(this.running);
  }

  rest() {
    this.running?.abort();
    this.running = null;
    this.streaming = false;
    this.asking = false;
    clearTimeout(this.beat);
    clearTimeout(this.again);
  }

  async poll(run) {
    clearTimeout(this.beat);
    this.asking = true;
    this.hurry = false;
    const { all } = this;
    try {
      const overview = await get('/loadline/overview', {
        params: { limit: this.limit, events: 50, ...(all ? { all: 'true' } : {}) },
        signal: run.signal,
      });
      if (run.signal.aborted) return;
      this.misses = 0;
      if (all === this.all) this.meet(overview, run);
    } catch (error) {
      if (run.signal.aborted) return;
      if (!(error instanceof Trouble)) console.error(error); // a fault of this page: say so, and keep the clock running
      this.misses += 1;
      this.tell({ poll: 'lost' });
    } finally {
      if (this.running === run) this.asking = false;
    }
    const wait = this.hurry ? SOON_MS : Math.min(EVERY_MS * 2 ** Math.max(0, this.misses - 1), LONGEST_POLL_MS);
    this.beat = setTimeout(() => this.poll(run), wait);
  }

  meet(overview, run) {
    // Another start of the server may count its events anew.
    const restarted = this.startedAt !== null && this.startedAt !== overview.started_at;
    this.startedAt = overview.started_at;
    if (this.lastEvent === null || restarted) this.lastEvent = overview.last_event ?? null;
    const returned = this.state.poll === 'lost' && this.state.stream === 'waiting';
    this.tell({ poll: 'fine' });
    this.on.overview(overview, restarted);
    if (run.signal.aborted) return;
    if (returned) clearTimeout(this.again); // the server is back: no need to wait any longer
    if (returned || !this.streaming) this.stream(run, FIRST_WAIT_MS);
  }

  async stream(run, waitMs) {
    this.streaming = true;
    this.tell({ stream: 'connecting' });
    let next = Math.min(waitMs * 2, LONGEST_WAIT_MS);
    try {
      for await (const event of events(this.lastEvent, run.signal)) {
        if (event === null) {
          this.tell({ stream: 'fine' });
          continue;
        }
        next = FIRST_WAIT_MS;
        if (Number.isFinite(event.id)) this.lastEvent = Math.max(this.lastEvent ?? 0, event.id);
        this.on.events([event]);
      }
    } catch {
      /* whatever ended it, the answer is to try again later */
    }
    if (run.signal.aborted) return;
    const pause = Math.round(waitMs * (0.75 + Math.random() / 2));
    this.tell({ stream: 'waiting', retryInS: Math.ceil(pause / 1000) });
    this.again = setTimeout(() => this.stream(run, next), pause);
  }

  tell(change) {
    Object.assign(this.state, change);
    this.on.state(this.state);
  }
}
