package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"settee/internal/servers"
	"settee/scripts/internal/lab"
)

// endpoints are the databases of the jobs, and what is written to them.
type endpoints interface {
	// about says what they are.
	about() string
	// databases returns the URLs of a job's databases, with credentials.
	databases(job int) (source, target string)
	// start begins the writing. open opens the window. end ends both. await returns when everything has arrived.
	start(ctx context.Context) error
	open(ctx context.Context) error
	end(ctx context.Context) error
	await(ctx context.Context) error
	count(ctx context.Context) (counts, error)
	// processor returns the processor time of the endpoints, or 0 if it is unknown.
	processor() (time.Duration, error)
	close(ctx context.Context) error
}

// openEndpoints makes the databases, with their first documents. fail is called if the endpoints fail later.
func openEndpoints(ctx context.Context, o *options, dir string, fail func(error)) (endpoints, error) {
	if o.endpoints == simulatedName {
		return startSimulated(ctx, o.plan(), dir, o.endpointCPUs)
	}
	named := o.endpoints
	if named == couchDBName {
		named = ""
	}
	return openCouchDB(ctx, o.plan(), named, fail)
}

// simulatedEndpoints are simulated in a process of their own.
type simulatedEndpoints struct {
	*lab.Server
	plan    plan
	process *servers.Process
}

func startSimulated(ctx context.Context, p plan, dir, cpus string) (*simulatedEndpoints, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ports, err := servers.FreePorts(1)
	if err != nil {
		return nil, err
	}
	told, err := json.Marshal(simulation{Plan: p, Port: ports[0]})
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(context.WithoutCancel(ctx), self)
	command.Env = append(os.Environ(), simulatedEnv+"="+string(told))
	lab.Confine(command, cpus)
	log := filepath.Join(dir, "endpoints.log")
	process, err := servers.Run(command, log, "")
	if err != nil {
		return nil, err
	}
	root := &url.URL{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(ports[0])}
	e := &simulatedEndpoints{Server: lab.NewServer(root), plan: p, process: process}
	err = process.Await(ctx, func(ctx context.Context) (bool, error) {
		return e.control(ctx, pathCount, nil) == nil, nil
	})
	if err != nil {
		err = fmt.Errorf("starting the simulated endpoints: %w; the end of their log: %s", err, servers.LastLines(log))
		return nil, errors.Join(err, e.close(ctx))
	}
	return e, nil
}

func (e *simulatedEndpoints) control(ctx context.Context, path string, into any) error {
	return e.Ask(ctx, http.MethodPost, path, nil, into)
}

func (e *simulatedEndpoints) about() string { return "simulated endpoints" }

func (e *simulatedEndpoints) databases(job int) (source, target string) {
	return e.URL("s"+strconv.Itoa(e.plan.source(job)), ""), e.URL("t"+strconv.Itoa(job), "")
}

func (e *simulatedEndpoints) start(ctx context.Context) error { return e.control(ctx, pathStart, nil) }
func (e *simulatedEndpoints) open(ctx context.Context) error  { return e.control(ctx, pathOpen, nil) }
func (e *simulatedEndpoints) end(ctx context.Context) error   { return e.control(ctx, pathEnd, nil) }
func (e *simulatedEndpoints) await(ctx context.Context) error { return e.control(ctx, pathAwait, nil) }

func (e *simulatedEndpoints) count(ctx context.Context) (c counts, err error) {
	err = e.control(ctx, pathCount, &c)
	if err == nil && len(c.Unknown) > 0 {
		err = fmt.Errorf("the simulated endpoints do not know requests of the node: %q", c.Unknown)
	}
	return c, err
}

func (e *simulatedEndpoints) processor() (time.Duration, error) {
	return servers.ProcessorTime(e.process.PID())
}

func (e *simulatedEndpoints) close(context.Context) error {
	e.process.Kill()
	e.CloseIdle()
	return nil
}

// couchDBEndpoints are databases of a CouchDB. This process writes to the sources, and reads the changes feeds of the
// targets.
type couchDBEndpoints struct {
	*traffic
	server           *lab.CouchDB
	sources, targets []string
	text             string
	feeds            errgroup.Group
	endFeeds         context.CancelFunc
}

// couchDBShards is the number of shards of a database, CouchDB's default.
const couchDBShards = 2

func openCouchDB(ctx context.Context, p plan, named string, fail func(error)) (*couchDBEndpoints, error) {
	server, err := lab.OpenCouchDB(ctx, named, couchDBShards)
	if err != nil {
		return nil, err
	}
	e := &couchDBEndpoints{server: server, text: makeText(p)[:p.DocSize]}
	e.traffic = newTraffic(p, e.write)
	watching, end := context.WithCancel(context.WithoutCancel(ctx))
	e.endFeeds = end
	create := func(n int) (names []string) {
		for len(names) < n && err == nil {
			var name string
			if name, err = server.Create(ctx); err == nil {
				names = append(names, name)
			}
		}
		return names
	}
	e.sources, e.targets = create(p.Sources), create(p.Jobs)
	if err == nil {
		err = e.fill(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, e.close(context.WithoutCancel(ctx)))
	}
	for job, target := range e.targets {
		e.feeds.Go(func() error {
			err := server.Follow(watching, target, func(id string) {
				docs, err := docNumbers([]byte(id), "")
				if err == nil {
					e.arrive(job, docs)
				}
			})
			if err != nil {
				fail(err)
			}
			return nil
		})
	}
	return e, nil
}

func (e *couchDBEndpoints) write(ctx context.Context, source, doc int) error {
	path := e.sources[source] + "/" + docID(doc)
	return e.server.Ask(ctx, http.MethodPut, path, fmt.Appendf(nil, `{"text":%q}`, e.text), nil)
}

func (e *couchDBEndpoints) about() string { return e.server.About }

func (e *couchDBEndpoints) databases(job int) (source, target string) {
	return e.server.URL(e.sources[e.source(job)], ""), e.server.URL(e.targets[job], "")
}

func (e *couchDBEndpoints) processor() (time.Duration, error) { return e.server.Processor() }

func (e *couchDBEndpoints) close(ctx context.Context) error {
	e.endFeeds()
	return errors.Join(e.feeds.Wait(), e.server.Remove(ctx, append(e.sources, e.targets...)...), e.server.Close())
}
