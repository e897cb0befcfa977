// Syncs PouchDB databases with a database of a node, both ways, and compares them:
// node pouchdb.js URL-OF-THE-NODE DIRECTORY
'use strict';
const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const path = require('node:path');
const PouchDB = require('pouchdb');

const [, , node, directory] = process.argv;
const remote = new PouchDB(node + 'pouch');
const local = (name) => new PouchDB(path.join(directory, name));

// Every leaf revision of every document, with its attachments' digests and contents.
async function leaves(db) {
  const ids = new Set();
  for (const change of (await db.changes({ style: 'all_docs' })).results) ids.add(change.id);
  const out = {};
  for (const id of [...ids].sort()) {
    const found = await db.get(id, { open_revs: 'all', revs: true });
    for (const { ok } of found) {
      const contents = {};
      for (const [name, stub] of Object.entries(ok._attachments || {})) {
        const content = await db.getAttachment(id, name, { rev: ok._rev });
        contents[name] = [stub.digest, stub.content_type, crypto.createHash('sha256').update(content).digest('hex')];
      }
      const { _id, _rev, _revisions, _attachments, _deleted, ...body } = ok;
      out[`${id} ${_rev}`] = { body, deleted: !!_deleted, path: _revisions.ids, contents };
    }
  }
  return out;
}

async function winners(db) {
  const out = {};
  for (const row of (await db.allDocs({ include_docs: true, conflicts: true })).rows) {
    out[row.id] = [row.value.rev, (row.doc._conflicts || []).slice().sort()];
  }
  return out;
}

async function equal(a, b, what) {
  assert.deepEqual(await leaves(a), await leaves(b), what + ': leaves');
  assert.deepEqual(await winners(a), await winners(b), what + ': winners');
}

async function main() {
  const one = local('one'), two = local('two');

  // Documents, deletions, ids that need escaping, and attachments, from both sides.
  await one.bulkDocs(Array.from({ length: 120 }, (_, n) => ({ _id: `one-${n}`, n, text: 'ä€😀/"\\' })));
  for (let n = 0; n < 20; n++) await one.remove(await one.get(`one-${n}`));
  await one.put({ _id: 'sl/ash +%?#', x: 1 });
  await one.put({ _id: '_design/views', views: { by: { map: 'function (doc) { emit(doc._id) }' } } });
  await one.put({
    _id: 'files',
    _attachments: {
      'hello.txt': { content_type: 'text/plain', data: Buffer.from('hello '.repeat(500)) },
      'deep/er/image.png': { content_type: 'image/png', data: crypto.randomBytes(200_000) },
    },
  });
  await remote.bulkDocs(Array.from({ length: 60 }, (_, n) => ({ _id: `remote-${n}`, n })));
  await remote.putAttachment('remote-file', 'a b.bin', crypto.randomBytes(100_000), 'application/octet-stream');
  let result = await one.sync(remote);
  assert.equal(result.push.doc_write_failures, 0);
  assert.equal(result.pull.doc_write_failures, 0);
  await equal(one, remote, 'after the first sync');

  // Conflicts: the same documents changed in three places.
  await two.replicate.from(remote);
  for (const db of [one, two, remote]) {
    for (let n = 30; n < 40; n++) {
      const doc = await db.get(`one-${n}`);
      await db.put({ ...doc, by: db.name });
      if (n % 3 === 0) await db.put({ ...(await db.get(`one-${n}`)), again: true });
    }
  }
  await two.remove(await two.get('one-50'));
  await one.put({ ...(await one.get('one-50')), kept: true });
  await one.putAttachment('files', 'late.txt', (await one.get('files'))._rev, Buffer.from('late'), 'text/plain');
  await one.removeAttachment('files', 'hello.txt', (await one.get('files'))._rev);
  await one.sync(remote);
  await two.sync(remote);
  await one.sync(remote);
  await equal(one, two, 'the two clients');
  await equal(one, remote, 'with conflicts');
  const conflicts = await remote.get('one-31', { conflicts: true });
  assert.equal(conflicts._conflicts.length, 2);

  // The conflicts are resolved at the server, and that arrives.
  for (const rev of conflicts._conflicts) await remote.remove('one-31', rev);
  await one.sync(remote);
  await equal(one, remote, 'after the resolution');
  assert.equal((await one.get('one-31', { conflicts: true }))._conflicts, undefined);

  // A live sync sees what comes while it waits.
  const live = one.sync(remote, { live: true, retry: true });
  const arrived = new Promise((resolve, reject) => {
    live.on('error', reject);
    one.changes({ live: true, since: 'now' }).on('change', (change) => change.id === 'live' && resolve());
  });
  await new Promise((resolve) => live.once('paused', resolve));
  await remote.put({ _id: 'live' });
  await arrived;
  live.cancel();

  // A third database gets it all at once.
  const three = local('three');
  await three.replicate.from(remote, { batch_size: 1000 });
  await equal(three, remote, 'a new client');

  // Filters of the feed.
  const few = local('few');
  await few.replicate.from(remote, { doc_ids: ['one-100', 'remote-1'] });
  assert.deepEqual((await few.allDocs()).rows.map((row) => row.id), ['one-100', 'remote-1']);
  const chosen = local('chosen');
  await chosen.replicate.from(remote, { selector: { n: { $lt: 5 }, _id: { $gt: 'remote' } } });
  assert.deepEqual((await chosen.allDocs()).rows.map((row) => row.id), [0, 1, 2, 3, 4].map((n) => `remote-${n}`));

  await assert.rejects(remote.put({ _id: 'one-100' }), { status: 409 });
  await assert.rejects(remote.get('nothing'), { status: 404 });
  await remote.destroy();
  await assert.rejects(new PouchDB(node + 'pouch', { skip_setup: true }).get('one-100'), { status: 404 });
  console.log('equal');
}

main().then(() => process.exit(0), (error) => {
  console.error(error);
  process.exit(1);
});
