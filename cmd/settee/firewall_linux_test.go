package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/netns"
	"settee/pkg/couch/couchtest"
)

// patience is the time limit of an attempt that should fail, because the rules drop or refuse it.
const patience = time.Second

// printRules returns the output of scripts/firewall.
func printRules(t *testing.T, role string, args ...string) string {
	t.Helper()
	cmd := exec.Command("../../scripts/firewall", args...)
	cmd.Env = append(os.Environ(), "SETTEE="+built(t), "COUCHDB_NODE_TYPE_API_FRONTEND=false", "COUCHDB_NODE_TYPE_REPLICATION=false",
		"COUCHDB_NODE_TYPE_"+strings.ToUpper(role)+"=true")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

// protect loads the rules of both roles.
func (n *network) protect(t *testing.T) {
	t.Helper()
	cluster := filepath.Join(t.TempDir(), "fdb.cluster")
	require.NoError(t, os.WriteFile(cluster, fmt.Appendf(nil, "# a comment\ntest:test@%s:4500,[%s]:4500\n", storeHost.four, storeHost.six), 0o600))
	store := "fdb://" + cluster + "?prefix=settee"
	n.frontend.Run(printRules(t, "api_frontend", "--store", store, "--set", "chttpd/bind_address=any"), "nft", "--file", "-")
	n.replication.Run(printRules(t, "replication", "--store", store, "--set", "chttpd/bind_address=any",
		"--out", fmt.Sprintf("ip daddr %s udp dport 53", outsideHost.four)), "nft", "--file", "-")
}

// attempt is an attempt to connect.
type attempt struct {
	from     *netns.Namespace
	protocol string
	to       string
	allowed  bool // by the rules
}

func (a attempt) String() string {
	return fmt.Sprintf("from %s to %s over %s", a.from.Name, a.to, a.protocol)
}

// make makes the attempt, with a time limit. It succeeds when an answer arrives.
func (a attempt) make(ctx context.Context, most time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	conn, err := a.from.Dial(ctx, a.protocol, a.to)
	if err != nil {
		return err
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	_ = conn.SetDeadline(end)
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 5))
	return err
}

// answerAll answers everything that a host receives over TCP on some ports, and over UDP on port 53.
func answerAll(n *netns.Namespace, ports ...string) {
	n.Helper()
	for _, port := range ports {
		n.Listen("[::]:"+port, func(conn net.Conn) {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(limit))
			hello := make([]byte, 5)
			if _, err := conn.Read(hello); err == nil {
				_, _ = conn.Write(hello)
			}
		})
	}
	var names net.PacketConn
	var err error
	n.In(func() { names, err = net.ListenPacket("udp", "[::]:53") })
	require.NoError(n, err)
	var answering sync.WaitGroup
	answering.Go(func() {
		for {
			hello := make([]byte, 5)
			_, from, err := names.ReadFrom(hello)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = names.WriteTo(hello, from)
			}
		}
	})
	n.Cleanup(func() {
		_ = names.Close()
		answering.Wait()
	})
}

func TestFirewall(t *testing.T) {
	n, lacks := newNetwork(t)
	if lacks != "" {
		t.Log("left out: what the rules of scripts/firewall do: " + lacks)
		return
	}
	answerAll(n.store, "4500", "4501")
	answerAll(n.outside, "5984", "443")
	answerAll(n.frontend, "5984", "22")
	answerAll(n.replication, "5984", "17986")
	var attempts []attempt
	add := func(from *netns.Namespace, allowed bool, to host, ports ...string) {
		for _, port := range ports {
			for _, address := range []string{to.four, to.six} {
				attempts = append(attempts, attempt{from, "tcp", net.JoinHostPort(address, port), allowed})
			}
		}
	}
	const allowed, denied = true, false
	add(n.outside, allowed, frontendHost, "5984")
	add(n.outside, denied, frontendHost, "22")
	add(n.outside, denied, replicationHost, "5984", "17986")
	add(n.store, denied, replicationHost, "5984", "17986")
	add(n.frontend, allowed, storeHost, "4500")
	add(n.frontend, denied, storeHost, "4501")
	add(n.frontend, denied, outsideHost, "5984", "443")
	add(n.frontend, denied, replicationHost, "5984", "17986")
	add(n.replication, allowed, storeHost, "4500")
	add(n.replication, allowed, outsideHost, "5984", "443")
	add(n.replication, allowed, frontendHost, "5984") // an endpoint like any other
	add(n.replication, denied, frontendHost, "22")
	attempts = append(attempts,
		// By default [replicator] denied_networks contains link-local addresses.
		attempt{n.replication, "tcp", outsideHost.local + ":443", denied},
		attempt{n.frontend, "udp", outsideHost.four + ":53", denied},
		attempt{n.frontend, "udp", "[" + outsideHost.six + "]:53", denied},
		attempt{n.replication, "udp", outsideHost.four + ":53", allowed},
		attempt{n.replication, "udp", storeHost.four + ":53", denied},
		attempt{n.outside, "udp", replicationHost.four + ":53", denied},
		attempt{n.outside, "udp", frontendHost.four + ":53", denied},
		// A host may connect to itself.
		attempt{n.frontend, "tcp", frontendHost.four + ":22", allowed},
		attempt{n.replication, "tcp", "[::1]:17986", allowed},
	)
	// IPv6 addresses that embed a denied IPv4 address are denied as well. All of them belong to the outside host here.
	for address, allows := range map[string]bool{
		"64:ff9b::169.254.84.2": denied, "64:ff9b::192.0.2.33": allowed,
		"2002:a9fe:5402::1": denied, "2002:c000:221::1": allowed,
		"::169.254.84.2": denied, "::192.0.2.33": allowed,
		"::ffff:0:169.254.84.2": denied, "::ffff:0:192.0.2.33": allowed,
		"64:ff9b:1:a9fe:54:200::": denied, "64:ff9b:1:c000:2:2100::": allowed, // of a translator with 48 bits
		"64:ff9b:1:ffa9:fe:5402::": denied, "64:ff9b:1:ffc0:0:221::": allowed, // 56
		"64:ff9b:1:ffff:a9:fe54:200:0": denied, "64:ff9b:1:ffff:c0:2:2100:0": allowed, // 64
		"64:ff9b:1:ffff::169.254.84.2": denied, "64:ff9b:1:ffff::192.0.2.33": allowed, // 96
		"2001:0:a9fe:5402::1": denied, "2001::5601:abfd": denied, "2001:0:c000:221::1": allowed,
		"2001:db8::5efe:169.254.84.2": denied, "2001:db8::200:5efe:169.254.84.2": denied, "2001:db8::5efe:192.0.2.33": allowed,
	} {
		n.outside.Run("", "ip", "address", "add", address+"/128", "dev", "lo", "nodad")
		n.replication.Run("", "ip", "-6", "route", "replace", address+"/128", "via", outsideHost.six)
		attempts = append(attempts, attempt{n.replication, "tcp", "[" + address + "]:443", allows})
	}
	try := func(protected bool) {
		var trying sync.WaitGroup
		for _, a := range attempts {
			trying.Go(func() {
				if protected && !a.allowed {
					assert.Error(t, a.make(t.Context(), patience), "%v", a)
				} else {
					assert.NoError(t, a.make(t.Context(), limit), "%v, protected: %v", a, protected)
				}
			})
		}
		trying.Wait()
	}
	try(false)
	n.protect(t)
	n.protect(t) // loading the rules again changes nothing
	try(true)
}

// startFoundationDB starts a server with the cluster file that protect uses.
func (n *network) startFoundationDB(t *testing.T) (storeURL string) {
	dir := t.TempDir()
	cluster := filepath.Join(dir, "fdb.cluster")
	require.NoError(t, os.WriteFile(cluster, fmt.Appendf(nil, "test:test@%s:4500\n", storeHost.four), 0o600))
	server := exec.Command("fdbserver", "--cluster-file", cluster, "--public-address", storeHost.four+":4500", "--listen-address", "public",
		"--datadir", filepath.Join(dir, "data"), "--logdir", dir, "--memory", "4GiB")
	require.NoError(t, n.store.Start(server))
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	n.store.Run("", "fdbcli", "-C", cluster, "--timeout", "60", "--exec", "configure new single memory; status minimal")
	return "fdb://" + cluster + "?prefix=settee"
}

func TestReplicationBehindTheFirewall(t *testing.T) {
	lacks := ""
	if tags != "fdb" {
		lacks = "this test was built without the tag fdb"
	} else if _, err := exec.LookPath("fdbserver"); err != nil {
		lacks = "there is no fdbserver in PATH"
	}
	var n *network
	if lacks == "" {
		n, lacks = newNetwork(t)
	}
	if lacks != "" {
		t.Log("left out: a replication between two roles behind the rules, with FoundationDB between them: " + lacks)
		return
	}
	storeURL := n.startFoundationDB(t)
	n.protect(t)

	// A peer outside, with a database.
	peer := couchtest.Shared(t)
	source, target := peer.DB(t, "firewallsource"), peer.DB(t, "firewalltarget")
	couchtest.Populate(t, source, couchtest.Population{Seed: 11, Docs: 1_000, Attachments: couchtest.Sizes(11, 5, 1<<20)})
	address := strings.TrimPrefix(peer.URL, "http://")
	n.outside.Relay(outsideHost.four+":5984", func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	})

	node := func(n *netns.Namespace, other string) *process {
		return beginBy(t, n.Start, "settee is running", []string{"COUCHDB_NODE_TYPE_" + other + "=false"},
			"serve", "--store", storeURL, "--set", "chttpd/bind_address="+frontendHost.four)
	}
	node(n.frontend, "REPLICATION")
	node(n.replication, "API_FRONTEND")

	outside := strings.NewReplacer(address, outsideHost.four+":5984")
	transport := &http.Transport{DialContext: n.outside.Dial}
	defer transport.CloseIdleConnections()
	status, answer := requestBy(t, &http.Client{Transport: transport}, http.MethodPost, withAdmin("http://"+frontendHost.four+":5984/_replicate"),
		fmt.Sprintf(`{"source":%q,"target":%q}`, outside.Replace(source), outside.Replace(target)))
	require.Equal(t, http.StatusOK, status, answer)
	couchtest.SameTrees(t, source, target)
}
