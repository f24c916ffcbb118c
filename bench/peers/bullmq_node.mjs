// BullMQ on Node: `node bullmq_node.mjs worker`, or `producer`, which answers JSON lines as bench/producer.py does.

import { openSync, writeSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { createInterface } from "node:readline";
import { setTimeout as rest } from "node:timers/promises";

const require = createRequire(join(process.env.BENCH_HOME, "package.json"));
const { Queue, QueueEvents, Worker } = require("bullmq");
const IORedis = require("ioredis");

const url = new URL(process.env.BENCH_URL);
const connect = () => new IORedis({ host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null });
const options = { removeOnComplete: true };

// The same as bench/run_counter.py; Node cannot map a file, so the number is written every fifty runs and at the end.
const counter = { runs: 0n, file: undefined, stamps: undefined, number: Buffer.alloc(8) };
const expected = BigInt(process.env.BENCH_JOBS ?? "0");

function count() {
  counter.runs += 1n;
  if (counter.runs < expected && counter.runs % 50n !== 1n) return;
  counter.file ??= openSync(join(process.env.BENCH_COUNTERS, `runs-${process.pid}-0`), "w");
  counter.number.writeBigUInt64LE(counter.runs);
  writeSync(counter.file, counter.number, 0, 8, 0);
}

function run(data) {
  if (data.at !== undefined) {
    const elapsed = process.hrtime.bigint() - BigInt(data.at);
    counter.stamps ??= openSync(join(process.env.BENCH_COUNTERS, "stamps"), "a");
    writeSync(counter.stamps, `${elapsed}\n`);
  }
  count();
}

async function work() {
  const worker = new Worker(
    "bench",
    async (job) => (job.name === "reply" ? job.data.user : run(job.data)),
    { connection: connect(), concurrency: 500 },
  );
  worker.on("error", (error) => console.error("ERROR", error));
  worker.on("failed", (_, error) => console.error("ERROR", error));
  process.on("SIGTERM", async () => {
    await worker.close();
    process.exit(0);
  });
}

const payload = (number) => ({ user: 10_000 + (number % 90_000), action: "resize", size: [640, 480] });
const payloads = (amount) => Array.from({ length: amount }, (_, number) => payload(number));

async function timed(count, body) {
  const cpu = process.cpuUsage();
  const start = performance.now();
  await body();
  const seconds = (performance.now() - start) / 1000;
  const used = process.cpuUsage(cpu);
  return { seconds, cpu: (used.user + used.system) / 1e6, count };
}

async function* pauses(count, pause, budget) {
  const until = performance.now() + budget * 1000;
  for (let number = 0; number < count && performance.now() < until; number += 1) {
    await rest(pause * (0.5 + Math.random()) * 1000);
    yield number;
  }
}

class Producer {
  async open() {
    this.queue = new Queue("bench", { connection: connect() });
    await this.queue.waitUntilReady();
    const version = require("bullmq/package.json").version;
    return { version, loop: `Node ${process.versions.node}`, can: ["enqueue", "enqueue_many", "call", "left"] };
  }

  async close() {
    await this.events?.close();
    await this.queue.close();
    return {};
  }

  enqueue({ count }) {
    const jobs = payloads(count);
    return timed(count, async () => {
      for (const job of jobs) await this.queue.add("work", job, options);
    });
  }

  callers({ count }) {
    const todo = payloads(count).values();
    const caller = async () => {
      for (const job of todo) await this.queue.add("work", job, options);
    };
    return timed(count, () => Promise.all(Array.from({ length: 100 }, caller)));
  }

  many({ count }) {
    const jobs = payloads(count);
    return timed(count, async () => {
      for (let at = 0; at < count; at += 1000) {
        const some = jobs.slice(at, at + 1000);
        await this.queue.addBulk(some.map((data) => ({ name: "work", data, opts: options })));
      }
    });
  }

  fill(request) {
    return this.many(request);
  }

  async call({ count, pause, budget }) {
    this.events ??= new QueueEvents("bench", { connection: connect() });
    await this.events.waitUntilReady();
    const taken = [];
    const answer = await timed(count, async () => {
      for await (const number of pauses(count, pause, budget)) {
        const data = payload(number);
        const start = process.hrtime.bigint();
        const job = await this.queue.add("reply", data, { removeOnComplete: 1000 });
        const user = await job.waitUntilFinished(this.events, 30_000);
        taken.push(Number(process.hrtime.bigint() - start));
        if (user !== data.user) throw new Error(`asked for ${data.user}, answered ${user}`);
      }
    });
    return { ...answer, count: taken.length, taken };
  }

  async stamp({ count, pause, budget }) {
    let sent = 0;
    for await (const number of pauses(count, pause, budget)) {
      const at = Number(process.hrtime.bigint()); // to the nanosecond for 104 days of uptime
      await this.queue.add("work", { ...payload(number), at }, options);
      sent += 1;
    }
    return { count: sent };
  }

  async left() {
    const counts = await this.queue.getJobCounts("wait", "active", "delayed", "prioritized", "failed");
    return { left: Object.values(counts).reduce((sum, number) => sum + number, 0) };
  }
}

async function produce() {
  const producer = new Producer();
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: name, ...request } = JSON.parse(line);
    process.stdout.write(`${JSON.stringify(await producer[name](request))}\n`);
  }
  process.exit(0);
}

await (process.argv[2] === "worker" ? work() : produce());
