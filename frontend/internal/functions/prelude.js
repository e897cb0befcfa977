// What functions of design documents find, and how they are called. The configuration of the program is
//
//	{"kind": "validate" | "filter" | "view" | "compile", "name": ..., "path": [...], "ddoc": {...}, "sources": [...]}
//
// where path leads to the function in the design document, and sources, of the kind compile, are texts of functions.
// Each call returns the JSON text of
//
//	{"ended": true, "log": [...], "error": [code, reason], "passed": [...], "thrown": ..., "failed": n}
//
// error is of a function that could not run to its end. passed has what a filter said of each document, up to the
// one where it failed. thrown is what a validate function threw, as JSON. failed is the first source that does not
// compile. Functions may change all objects that they can reach, so what is used afterwards is kept here.
(function (config) {
  'use strict';

  var evaluate = eval; // in the global scope
  var global = evaluate('this');
  var stringify = JSON.stringify;
  var log = [], emitted = false, modules = {};

  global.emit = function () { emitted = true; };
  global.isArray = Array.isArray;
  global.toJSON = stringify;
  global.sum = function (values) {
    var total = 0;
    for (var i in values) {
      total += values[i];
    }
    return total;
  };
  global.log = function (message) {
    if (log.length < 10) {
      log[log.length] = String(typeof message === 'string' ? message : stringify(message)).slice(0, 1000);
    }
  };
  global.require = function (name) { return load(name, []); };

  function text(thrown) {
    try {
      return String(thrown);
    } catch (e) {
      return 'something without a text was thrown';
    }
  }

  // compile returns the function of a source. A source may be an anonymous function, with or without statements
  // before it. That is no script, so the function is put into parentheses.
  function compile(source) {
    if (source === '') {
      throw ['error', 'not_found', 'missing function'];
    }
    var wrong, made;
    try {
      made = evaluate(source);
    } catch (e) {
      wrong = e;
    }
    if (wrong instanceof SyntaxError) {
      var reason, pattern = /\bfunction\s*\(/g;
      for (var match, tries = 0; typeof made !== 'function' && tries < 20 && (match = pattern.exec(source)); tries++) {
        var rest = source.slice(match.index);
        var bare = rest.replace(/[\s;]+$/, '');
        var texts = [rest, bare, rest.slice(0, rest.lastIndexOf('}') + 1)];
        for (var i = 0; typeof made !== 'function' && i < texts.length; i++) {
          try {
            made = evaluate(source.slice(0, match.index) + '(' + texts[i] + '\n)');
          } catch (e) {
            reason = reason || e;
          }
        }
      }
      wrong = reason || wrong;
    }
    if (typeof made === 'function') {
      return made;
    }
    if (wrong !== undefined) {
      throw ['error', 'compilation_error', text(wrong) + ' (' + source + ')'];
    }
    throw ['error', 'compilation_error', 'Expression does not eval to a function. (' + source + ')'];
  }

  function invalid(reason) { return ['error', 'invalid_require_path', reason]; }

  // load returns the exports of the module of a path. A path that begins with a dot is relative to the folder of
  // the module that requires it.
  function load(name, folder) {
    var names = String(name).split('/'), path = [], value = config.ddoc;
    if (names[0] === '.' || names[0] === '..') {
      path = folder.slice();
    }
    for (var i = 0; i < names.length; i++) {
      if (names[i] === '..') {
        if (path.length === 0) {
          throw invalid('Object has no parent ' + name);
        }
        path.pop();
      } else if (names[i] !== '.') {
        path.push(names[i]);
      }
    }
    for (i = 0; i < path.length; i++) {
      value = value === null || typeof value !== 'object' || !Object.prototype.hasOwnProperty.call(value, path[i]) ? undefined : value[path[i]];
      if (value === undefined) {
        throw invalid('Object has no property "' + path[i] + '": ' + name);
      }
    }
    if (typeof value !== 'string') {
      throw invalid('Must require a JavaScript string, not: ' + typeof value);
    }
    var id = path.join('/');
    if (!modules[id + '/']) {
      var module = {id: id, exports: {}};
      modules[id + '/'] = module;
      try {
        var body = evaluate('(function (module, exports, require) { ' + value + '\n })');
        body.call(global, module, module.exports, function (name) { return load(name, path.slice(0, -1)); });
      } catch (e) {
        delete modules[id + '/'];
        throw ['error', 'compilation_error', "Module require('" + name + "') raised error " + text(e)];
      }
    }
    return modules[id + '/'].exports;
  }

  // failure returns the code and the reason of what a function threw.
  function failure(thrown) {
    if (thrown === null || thrown === undefined) {
      return ['TypeError', config.name + ': ' + text(thrown) + ' was thrown'];
    }
    if (Array.isArray(thrown) && (thrown[0] === 'error' || thrown[0] === 'fatal') && thrown.length === 3) {
      return [text(thrown[1]), plain(thrown[2])];
    }
    if (thrown.error && thrown.reason) {
      return [text(thrown.error), plain(thrown.reason)];
    }
    if (thrown.name) {
      return [text(thrown.name), config.name + ': ' + plain(thrown.message)];
    }
    return ['unnamed_error', config.name + ': ' + plain(thrown)];
  }

  // plain returns a string as it is, and any other value as JSON.
  function plain(value) {
    return typeof value === 'string' ? value : stringify(value) || text(value);
  }

  // member returns the function that the program runs.
  function member() {
    var value = config.ddoc;
    for (var i = 0; i < config.path.length; i++) {
      value = value === null || typeof value !== 'object' ? undefined : value[config.path[i]];
    }
    if (typeof value !== 'string') {
      throw ['error', 'compilation_error', 'Expression does not eval to a function. (' + plain(value) + ')'];
    }
    return compile(value);
  }

  var run, broken;
  try {
    run = config.kind === 'compile' ? null : member();
  } catch (e) {
    broken = failure(e);
  }

  var kinds = {
    validate: function (argument, out) {
      try {
        run.call(config.ddoc, argument.doc, argument.old, argument.user, argument.security);
      } catch (e) {
        if (e === null || e === undefined || e.name && e.stack || Array.isArray(e)) {
          throw e;
        }
        if (stringify(e) === undefined) {
          throw ['error', 'unknown_error', text(e)];
        }
        out.thrown = e;
      }
    },
    filter: function (argument, out) {
      for (var i = 0; i < argument.docs.length; i++) {
        out.passed[i] = !!run.call(config.ddoc, argument.docs[i], argument.req);
      }
    },
    view: function (argument, out) {
      for (var i = 0; i < argument.docs.length; i++) {
        emitted = false;
        run(argument.docs[i]);
        out.passed[i] = emitted;
      }
    },
    compile: function (argument, out) {
      for (out.failed = 0; out.failed < config.sources.length; out.failed++) {
        compile(config.sources[out.failed]);
      }
    }
  };

  return function (argument) {
    var out = {ended: true, log: log, passed: []};
    if (broken) {
      out.error = broken;
    } else {
      try {
        kinds[config.kind](argument, out);
      } catch (e) {
        out.error = failure(e);
      }
    }
    return stringify(out);
  };
})
