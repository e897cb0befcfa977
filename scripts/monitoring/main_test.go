// Package monitoring_test checks the alert rules, the scrape configuration and the dashboard against Prometheus's own
// packages and against what a node answers. It is a module of its own, so that settee does not depend on these packages.
package monitoring_test

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/stretchr/testify/require"
)

const (
	root = "../.."
	// limit is how long a test waits for what must happen.
	limit = 2 * time.Minute
	// metricsPath is where a node has its metrics.
	metricsPath = "/_node/_local/_prometheus"
)

// A node of both roles, with certificates, so that it has all metrics.
var node struct {
	url, metrics string // of the frontend, and of the metrics on the port of their own
	answer       []byte // to a request for metrics
}

// admin is the server administrator of the node.
const admin = "admin"

func TestMain(m *testing.M) { os.Exit(withNode(m.Run)) }

func withNode(run func() int) int {
	dir, err := os.MkdirTemp("", "settee-monitoring")
	must(err)
	defer func() { _ = os.RemoveAll(dir) }()
	program := filepath.Join(dir, "settee")
	// What go run links is in Go's cache, and the tests of other packages use it, too.
	build := exec.Command("go", "run", "-exec", "cp", "./cmd/settee", program)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	stop := serve(dir, program)
	defer stop()
	addMirror()
	response, err := http.Get(node.metrics)
	must(err)
	node.answer, err = io.ReadAll(response.Body)
	must(errors.Join(err, response.Body.Close()))
	return run()
}

// addMirror adds a mirror, because metrics of mirrors are there for each alone.
func addMirror() {
	const document = `{"source":"http://localhost:1/","target":"http://localhost:1/","continuous":true,"mirror":{"prefix":"p-","verify":"24h"}}`
	request, err := http.NewRequest(http.MethodPut, node.url+"/_replicator/mirror", strings.NewReader(document))
	must(err)
	request.SetBasicAuth(admin, admin)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	must(err)
	must(response.Body.Close())
	if response.StatusCode != http.StatusCreated {
		panic(response.Status)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// serve starts a node, waits until it runs, and returns a function that ends it.
func serve(dir, program string) (stop func()) {
	file := filepath.Join(dir, "both.pem")
	writeCertificate(file)
	cmd := exec.Command(program, "serve", "--store", "mem:")
	for _, set := range []string{
		"chttpd/port=0", "chttpd_auth/iterations=10", "prometheus/additional_port=true", "prometheus/port=0",
		"ssl/enable=true", "ssl/port=0", "ssl/cert_file=" + file, "ssl/key_file=" + file, "replicator/cert_file=" + file,
		"replicator/key_file=" + file,
	} {
		cmd.Args = append(cmd.Args, "--set", set)
	}
	cmd.Env = append(os.Environ(), "COUCHDB_USER="+admin, "COUCHDB_PASSWORD="+admin)
	pipe, err := cmd.StderrPipe()
	must(err)
	must(cmd.Start())
	running, ended := make(chan bool, 1), make(chan struct{})
	var log bytes.Buffer
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(pipe)
		for lines.Scan() {
			log.WriteString(lines.Text() + "\n")
			var line struct{ URL, Metrics, Message string }
			if json.Unmarshal(lines.Bytes(), &line) != nil {
				continue
			}
			if line.URL != "" {
				node.url = strings.TrimSuffix(line.URL, "/")
			}
			if line.Metrics != "" {
				node.metrics = line.Metrics
			}
			if line.Message == "settee is running" {
				running <- true
			}
		}
	}()
	select {
	case <-running:
	case <-ended:
		panic(log.String())
	case <-time.After(limit):
		panic("the node does not run")
	}
	return func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		_ = cmd.Wait()
	}
}

// writeCertificate writes a certificate and its key.
func writeCertificate(file string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	var text bytes.Buffer
	must(pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: raw}))
	must(pem.Encode(&text, &pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	must(os.WriteFile(file, text.Bytes(), 0o600))
}

// sample is a series of an answer, and its value.
type sample struct {
	labels.Labels
	value float64
}

// scraped parses an answer to a request for metrics with the parser of Prometheus.
func scraped(t *testing.T, answer []byte, contentType string) (all []sample) {
	t.Helper()
	p, err := textparse.New(answer, contentType, nil, textparse.ParserOptions{})
	require.NoError(t, err)
	for {
		entry, err := p.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if entry != textparse.EntrySeries {
			continue
		}
		var s sample
		_, _, s.value = p.Series()
		p.Labels(&s.Labels)
		all = append(all, s)
	}
}

// exported returns the names of the node's metrics, and that of Prometheus's own metric which is allowed beside them.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{"up": true}
	for _, s := range scraped(t, node.answer, "text/plain; version=0.0.4") {
		names[s.Get(model.MetricNameLabel)] = true
	}
	return names
}
