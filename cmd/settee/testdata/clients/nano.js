// Creates, queries and cancels replications of a node through nano:
// node nano.js URL-OF-THE-NODE
'use strict';
const assert = require('node:assert/strict');
const nano = require('nano');

const url = process.argv[2];
const couch = nano(url.replace(/\/$/, ''));
const until = async (what, is) => {
  for (let n = 0; n < 1200; n++) {
    if (await is()) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error('not in two minutes: ' + what);
};

async function main() {
  assert.equal((await couch.info()).couchdb, 'Welcome');
  await couch.db.create('nano-a');
  const a = couch.use('nano-a');
  await a.bulk({ docs: Array.from({ length: 50 }, (_, n) => ({ _id: `d${n}`, n })) });
  await a.attachment.insert('with', 'file.txt', 'some text', 'text/plain');
  assert.equal(String(await a.attachment.get('with', 'file.txt')), 'some text');
  assert.equal((await a.list({ limit: 3, include_docs: true })).rows.length, 3);
  assert.deepEqual((await a.fetch({ keys: ['d1', 'd2'] })).rows.map((row) => row.doc.n), [1, 2]);

  // POST /_replicate.
  const once = await couch.db.replicate(url + 'nano-a', url + 'nano-b', { create_target: true });
  assert.equal(once.ok, true);
  assert.equal((await couch.db.get('nano-b')).doc_count, 51);

  // A document in _replicator.
  const enabled = await couch.db.replication.enable(url + 'nano-a', url + 'nano-c', { create_target: true, continuous: true });
  assert.equal(enabled.ok, true);
  await until('the documents are there', async () => {
    try {
      return (await couch.db.get('nano-c')).doc_count === 51;
    } catch (error) {
      if (error.statusCode === 404) return false;
      throw error;
    }
  });
  const document = await couch.db.replication.query(enabled.id);
  assert.equal(document.source, url + 'nano-a');
  await a.insert({ _id: 'later' });
  await until('a later document arrives', async () => (await couch.db.get('nano-c')).doc_count === 52);
  const jobs = await couch.request({ path: '_scheduler/jobs' });
  assert.deepEqual(jobs.jobs.map((job) => job.doc_id), [enabled.id]);

  await couch.db.replication.disable(enabled.id, document._rev);
  assert.equal((await couch.request({ path: '_scheduler/jobs' })).total_rows, 0);
  await assert.rejects(couch.db.replication.query(enabled.id), { statusCode: 404 });
  // The run ends soon after that: what another one has copied meanwhile no longer arrives.
  let late = 0;
  await until('the run has ended', async () => {
    await a.insert({ _id: `late-${late++}` });
    await couch.db.replicate(url + 'nano-a', url + 'nano-b');
    return (await couch.db.get('nano-c')).doc_count < 52 + late;
  });
  const copied = (await couch.db.get('nano-c')).doc_count;

  // One that ends says so in its document.
  const ends = await couch.db.replication.enable(url + 'nano-a', url + 'nano-d', { create_target: true });
  await until('it is completed', async () => (await couch.db.replication.query(ends.id))._replication_state === 'completed');
  assert.equal((await couch.db.get('nano-d')).doc_count, 52 + late);
  assert.equal((await couch.db.get('nano-c')).doc_count, copied);

  // Bad ones are refused.
  await assert.rejects(couch.use('_replicator').insert({ source: 'nonsense', target: url + 'x' }),
    (error) => error.statusCode === 403 && /source/.test(error.reason));
  for (const name of ['nano-a', 'nano-b', 'nano-c', 'nano-d']) await couch.db.destroy(name);
  console.log('done');
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
