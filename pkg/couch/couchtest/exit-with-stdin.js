'use strict';

// Loaded before the server: it must not outlive the test process that started it, however that ends,
// nor leave behind the directory that it alone was given.
const fs = require('fs');

function leave() {
  const dir = process.env.COUCHTEST_REMOVE;
  if (dir) {
    fs.rmSync(dir, { recursive: true, force: true });
  }
  process.exit(0);
}

process.stdin.on('end', leave);
process.stdin.on('error', leave);
process.stdin.resume();
