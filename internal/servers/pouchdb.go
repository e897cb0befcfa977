package servers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"settee/internal/testkit"
)

// pouchDBPackages is the folder of the module where npm installs PouchDB Server.
const pouchDBPackages = "pkg/couch/couchtest"

// PouchDB is a PouchDB Server with its databases in memory.
type PouchDB struct {
	// URL is the server's root, without a slash at its end and without credentials.
	URL string
	// Username and Password are the administrator's, or empty in an admin party (where everyone is admin).
	Username, Password string

	program string
	dir     string
	// identity comes from the configuration, so that another server on the port can be detected.
	identity string
	process  *Process
}

// PouchDBOptions are the options of StartPouchDB.
type PouchDBOptions struct {
	// Dir is an existing directory for the configuration, the logs and temporary files.
	Dir string
	// Temporary removes the directory if this process ends before the server.
	Temporary bool
	// Username and Password make an administrator. Without them everyone is admin.
	Username, Password string
}

// FindPouchDB returns the path of the program. Unlike other servers it must be there: the project's lock file has it.
func FindPouchDB() (string, error) {
	root, err := testkit.ModuleRoot()
	if err != nil {
		return "", err
	}
	program := filepath.Join(root, pouchDBPackages, "node_modules", "pouchdb-server", "bin", "pouchdb-server")
	if _, err := os.Stat(program); err != nil {
		return "", errors.New("PouchDB Server is not installed: run make test, or npm ci in " + pouchDBPackages)
	}
	return program, nil
}

// StartPouchDB starts a PouchDB Server and returns when it is ready.
func StartPouchDB(ctx context.Context, options PouchDBOptions) (*PouchDB, error) {
	program, err := FindPouchDB()
	if err != nil {
		return nil, err
	}
	p := &PouchDB{
		Username: options.Username, Password: options.Password, program: program, dir: options.Dir, identity: rand.Text(),
	}
	if err := p.configure(); err != nil {
		return nil, fmt.Errorf("starting PouchDB Server: %w", err)
	}
	err = retryPort(func() error {
		ports, err := FreePorts(1)
		if err != nil {
			return err
		}
		return p.listen(ctx, ports[0], options.Temporary)
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (p *PouchDB) configure() error {
	config := map[string]map[string]string{
		"couchdb": {"uuid": p.identity},
		"log":     {"file": filepath.Join(p.dir, "log.txt")},
	}
	if p.Username != "" {
		config["admins"] = map[string]string{p.Username: p.Password}
	}
	encoded, err := json.Marshal(config)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.dir, "config.json"), encoded, 0o600)
}

// listen starts the process on a port and returns when the server is ready.
func (p *PouchDB) listen(ctx context.Context, port int, temporary bool) error {
	p.URL = "http://127.0.0.1:" + strconv.Itoa(port)
	command := exec.Command("node",
		// The server dates from when unhandled rejections were warnings. Some requests cause one.
		"--unhandled-rejections=warn",
		p.program, "--in-memory", "--no-stdout-logs", "--host", "127.0.0.1", "--port", strconv.Itoa(port))
	command.Dir = p.dir
	command.Env = append(os.Environ(), "TMPDIR="+p.dir)
	remove := ""
	if temporary {
		remove = p.dir
	}
	if err := os.RemoveAll(p.output()); err != nil { // it may be from another port
		return err
	}
	process, err := Run(command, p.output(), remove)
	if err == nil {
		p.process = process
		if err = process.Await(ctx, p.answers); err == nil {
			return nil
		}
		process.Kill()
	}
	return fmt.Errorf("starting PouchDB Server on port %d: %w; the end of its output: %s", port, err, LastLines(p.output()))
}

// answers reports whether the server is ready. It returns errPortTaken if another server answers.
func (p *PouchDB) answers(ctx context.Context) (bool, error) {
	status, body, known := get(ctx, p.URL+"/", p.Username, p.Password)
	return ready(status, body, known, p.identity)
}

func (p *PouchDB) output() string { return filepath.Join(p.dir, "output.txt") }

// Admin returns the server's root, with the administrator's name and password in it if there is one.
func (p *PouchDB) Admin() string {
	if p.Username == "" {
		return p.URL
	}
	return withCredentials(p.URL, p.Username, p.Password)
}

// Kill ends the server with SIGKILL.
func (p *PouchDB) Kill() { p.process.Kill() }
