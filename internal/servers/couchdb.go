package servers

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// CouchDBHome is the environment variable with the directory of CouchDB's release.
const CouchDBHome = "COUCHDB_HOME"

// couchDBFolder is the directory of the release in CouchDB's packages.
const couchDBFolder = "/opt/couchdb"

// couchDBLog is the name of a server's log file.
const couchDBLog = "couchdb.log"

// CouchDB is a single-node CouchDB.
type CouchDB struct {
	// URL is the server's root, without a slash at its end and without credentials.
	URL string
	// Username and Password are the administrator's.
	Username, Password string

	home, dir string
	uuid      string
	port      int
	temporary bool
	process   *Process
}

// CouchDBOptions are the options of StartCouchDB.
type CouchDBOptions struct {
	// Dir is an existing directory without spaces in its path. The server keeps its databases, its
	// configuration and couchdb.log there.
	Dir string
	// Port is the port of 127.0.0.1 to listen on; 0 means a free one.
	Port int
	// Temporary removes the directory if this process ends before the server.
	Temporary bool
	// Settings are more settings, by section and key.
	Settings map[string]map[string]string
}

// FindCouchDB returns the directory of CouchDB's release. The error wraps ErrNotInstalled if
// COUCHDB_HOME is not set and there is no release in /opt/couchdb.
func FindCouchDB() (string, error) {
	named := os.Getenv(CouchDBHome)
	home := cmp.Or(named, couchDBFolder)
	switch _, err := os.Stat(filepath.Join(home, "bin", "couchdb")); {
	case err == nil:
		return home, nil
	case named != "":
		return "", fmt.Errorf("%s=%s has no CouchDB release: %w", CouchDBHome, named, err)
	default:
		return "", fmt.Errorf("CouchDB: no release in %s, and %s is not set: %w", home, CouchDBHome, ErrNotInstalled)
	}
}

// StartCouchDB starts a CouchDB, creates an administrator and the system databases, and returns
// when it is ready.
func StartCouchDB(ctx context.Context, options CouchDBOptions) (*CouchDB, error) {
	home, err := FindCouchDB()
	if err != nil {
		return nil, err
	}
	c := &CouchDB{Username: "admin", Password: rand.Text(), home: home, dir: options.Dir,
		uuid: strings.ToLower(rand.Text()), temporary: options.Temporary}
	if err := c.configure(options.Settings); err != nil {
		return nil, fmt.Errorf("starting CouchDB: %w", err)
	}
	if options.Port != 0 {
		return c, c.listen(ctx, options.Port)
	}
	err = retryPort(func() error {
		ports, err := FreePorts(1)
		if err != nil {
			return err
		}
		return c.listen(ctx, ports[0])
	})
	return c, err
}

// configure writes the configuration files that stay the same for all starts.
func (c *CouchDB) configure(settings map[string]map[string]string) error {
	args, err := os.ReadFile(filepath.Join(c.home, "etc", "vm.args"))
	if err != nil {
		return err
	}
	// Without a name the Erlang node is not distributed: it needs no epmd, and several can run
	// side by side.
	var kept []string
	for line := range strings.Lines(string(args)) {
		if word, _, _ := strings.Cut(line, " "); word != "-name" && word != "-sname" && word != "-setcookie" {
			kept = append(kept, line)
		}
	}
	// Schedulers that wait busily take processor time from the tests.
	kept = append(kept, "\n+sbwt none\n+sbwtdcpu none\n+sbwtdio none\n")
	data := filepath.Join(c.dir, "data")
	all := map[string]map[string]string{
		"couchdb":     {"single_node": "true", "uuid": c.uuid, "database_dir": data, "view_index_dir": data},
		"smoosh":      {"state_dir": data},
		"chttpd_auth": {"secret": rand.Text(), "iterations": "10"}, // 600,000 take half a second for each new password
		"cluster":     {"n": "1"},
		"replicator":  {"startup_jitter": "0"},
		"admins":      {c.Username: c.Password},
	}
	for section, values := range settings {
		if all[section] == nil {
			all[section] = map[string]string{}
		}
		maps.Copy(all[section], values)
	}
	return errors.Join(
		os.MkdirAll(data, 0o700),
		os.WriteFile(c.file("vm.args"), []byte(strings.Join(kept, "")), 0o600),
		os.WriteFile(c.file("local.ini"), ini(all), 0o600),
	)
}

// ini returns settings as the text of an ini file.
func ini(settings map[string]map[string]string) []byte {
	var text bytes.Buffer
	for _, section := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&text, "[%s]\n", section)
		for _, key := range slices.Sorted(maps.Keys(settings[section])) {
			fmt.Fprintf(&text, "%s = %s\n", key, settings[section][key])
		}
	}
	return text.Bytes()
}

func (c *CouchDB) file(name string) string { return filepath.Join(c.dir, name) }

// listen starts the process on a port.
func (c *CouchDB) listen(ctx context.Context, port int) error {
	c.port, c.URL = port, "http://127.0.0.1:"+strconv.Itoa(port)
	chttpd := map[string]map[string]string{"chttpd": {"port": strconv.Itoa(port), "bind_address": "127.0.0.1"}}
	err := errors.Join(os.WriteFile(c.file("port.ini"), ini(chttpd), 0o600), os.RemoveAll(c.file(couchDBLog))) // the log may be from another port
	if err != nil {
		return err
	}
	return c.start(ctx)
}

// Start starts the server again after Kill, with the same data and port, and returns when it is
// ready. It waits while another process uses the port.
func (c *CouchDB) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		if err := c.start(ctx); !errors.Is(err, errPortTaken) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(poll):
		}
	}
}

// start starts the process and returns when the server is ready.
func (c *CouchDB) start(ctx context.Context) error {
	command := exec.Command(filepath.Join(c.home, "bin", "couchdb"), "-noinput")
	command.Dir = c.dir
	// The server writes settings made through its API, such as the administrator's hash, to the
	// last file.
	files := []string{filepath.Join(c.home, "etc", "default.ini"), c.file("port.ini"), c.file("local.ini")}
	command.Env = append(os.Environ(), "HOME="+c.dir, "ERL_CRASH_DUMP="+c.file("erl_crash.dump"),
		"COUCHDB_ARGS_FILE="+c.file("vm.args"), "COUCHDB_INI_FILES="+strings.Join(files, " "))
	remove := ""
	if c.temporary {
		remove = c.dir
	}
	process, err := Run(command, c.file(couchDBLog), remove)
	if err == nil {
		c.process = process
		if err = process.Await(ctx, c.answers); err == nil {
			return nil
		}
		process.Kill()
	}
	return fmt.Errorf("starting CouchDB on port %d: %w; the end of its log: %s", c.port, err, LastLines(c.file(couchDBLog)))
}

// answers reports whether the server is ready. It returns errPortTaken if another server answers.
func (c *CouchDB) answers(ctx context.Context) (bool, error) {
	status, body, known := get(ctx, c.URL+"/", c.Username, c.Password)
	if ok, err := ready(status, body, known, c.uuid); !ok || err != nil {
		return false, err
	}
	for _, path := range []string{"/_up", "/_users", "/_replicator"} {
		status, _, known = get(ctx, c.URL+path, c.Username, c.Password)
		if !known || status != http.StatusOK {
			return false, nil
		}
	}
	return true, nil
}

// ready reports whether a server has answered a request for its root. It returns errPortTaken if another server has.
func ready(status int, body []byte, known bool, uuid string) (bool, error) {
	var root struct {
		UUID string `json:"uuid"`
	}
	if known && (status != http.StatusOK || json.Unmarshal(body, &root) != nil || root.UUID != uuid) {
		return false, errPortTaken
	}
	return known, nil
}

// get makes one request on a connection of its own, as a user if there is a name. known is false if there is no response.
func get(ctx context.Context, url, username, password string) (status int, body []byte, known bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, false
	}
	if username != "" {
		request.SetBasicAuth(username, password)
	}
	request.Close = true
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return 0, nil, false
	}
	defer response.Body.Close()
	body, err = io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, body, err == nil
}

// Admin returns the server's root with the administrator's name and password in it.
func (c *CouchDB) Admin() string { return withCredentials(c.URL, c.Username, c.Password) }

func withCredentials(root, username, password string) string {
	u, err := url.Parse(root)
	if err != nil {
		panic(err) // listen made a valid URL
	}
	u.User = url.UserPassword(username, password)
	return u.String()
}

// Log returns the server's log. The server writes it with a delay.
func (c *CouchDB) Log() (string, error) {
	text, err := os.ReadFile(c.file(couchDBLog))
	return string(text), err
}

// PID returns the process id of the server, whose descendants belong to it.
func (c *CouchDB) PID() int { return c.process.PID() }

// Kill ends the server with SIGKILL.
func (c *CouchDB) Kill() { c.process.Kill() }

// Freeze stops the server with SIGSTOP.
func (c *CouchDB) Freeze() error { return c.process.Signal(syscall.SIGSTOP) }

// Thaw continues a frozen server.
func (c *CouchDB) Thaw() error { return c.process.Signal(syscall.SIGCONT) }
