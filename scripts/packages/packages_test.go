//go:build packages

// Package packages_test installs the packages of settee in a folder that has nothing else, and runs settee there.
//
// It builds the files of a release for this machine's architecture, or takes those of the folder that SETTEE_PACKAGES names.
package packages_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// limit is how long a test waits for what must happen.
const limit = 2 * time.Minute

var made string // the folder of the files, if the tests have built them

func TestMain(m *testing.M) {
	status := m.Run()
	if made != "" {
		_ = os.RemoveAll(made)
	}
	os.Exit(status)
}

// built returns the folder of the files of a release. If files differ from the commit, it has only the packages.
var built = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("SETTEE_PACKAGES"); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "settee-packages")
	if err != nil {
		return "", err
	}
	made = dir
	program := release("../..", dir)
	if differs() {
		program = exec.Command("./build", dir, runtime.GOARCH)
	}
	if out, err := program.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the packages: %w\n%s", err, out)
	}
	return dir, nil
})

// differs reports whether files of the repository differ from its commit.
func differs() bool {
	changed, err := exec.Command("git", "status", "--porcelain").Output()
	return err != nil || len(changed) > 0
}

// release returns the command that builds a release of a clone for this machine in a folder.
func release(clone, dir string) *exec.Cmd {
	cmd := exec.Command("scripts/packages/release", dir)
	cmd.Dir = clone
	cmd.Env = append(os.Environ(), "ARCHS="+runtime.GOARCH, "SYSTEMS="+runtime.GOOS+"/"+runtime.GOARCH)
	return cmd
}

// packages returns the packages for this machine, by name.
func packages(t *testing.T, ending string) map[string]string {
	t.Helper()
	for _, tool := range []string{"bash", "git", "make", "gzip"} {
		needs(t, tool)
	}
	dir, err := built()
	require.NoError(t, err)
	found, err := filepath.Glob(filepath.Join(dir, "*"+ending))
	require.NoError(t, err)
	all := map[string]string{}
	for _, path := range found {
		name := "settee"
		if strings.HasPrefix(filepath.Base(path), "settee-foundationdb") {
			name = "settee-foundationdb"
		}
		all[name] = path
	}
	require.Contains(t, all, "settee", "%s", dir)
	return all
}

// needs skips a test that needs a program that is not there.
func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is missing", program)
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" || os.Getuid() != 0 {
		t.Skip("maintainer scripts run in a changed root, which needs root")
	}
}

// run runs a program, and returns what it prints.
func run(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.Command(program, args...).CombinedOutput()
	require.NoError(t, err, "%s %v: %s", program, args, out)
	return string(out)
}

// newRoot returns a folder with what maintainer scripts need, and nothing else.
func newRoot(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.Chmod(root, 0o755)) //nolint:gosec // the user settee enters it
	for _, dir := range []string{
		"usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc", "tmp", "var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/rpm", "dev",
	} {
		makeFolder(t, filepath.Join(root, dir))
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		require.NoError(t, os.Symlink("usr/"+dir, filepath.Join(root, dir)))
	}
	for file, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\n", "etc/group": "root:x:0:\n", "var/lib/dpkg/status": "", "dev/null": "",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o644))
	}
	for _, program := range []string{
		"sh", "chown", "chmod", "cp", "dpkg-query", "getent", "grep", "mkdir", "mv", "rm", "rmdir", "systemd-sysusers",
	} {
		needs(t, program)
		path, err := exec.LookPath(program)
		require.NoError(t, err)
		copyInto(t, root, path)
		libraries, err := exec.Command("ldd", path).Output()
		require.NoError(t, err)
		for _, word := range strings.Fields(string(libraries)) {
			if strings.HasPrefix(word, "/") {
				copyInto(t, root, word)
			}
		}
	}
	return root
}

// makeFolder makes a folder that all users may enter, as those of a system are.
func makeFolder(t *testing.T, path string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(path, 0o755)) //nolint:gosec // the user settee enters it
}

func copyInto(t *testing.T, root, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	target := filepath.Join(root, path)
	makeFolder(t, filepath.Dir(target))
	require.NoError(t, os.WriteFile(target, content, 0o755))
}

// installed are the files of a package, with their modes and whether the group settee has them.
var installed = map[string]struct {
	mode  fs.FileMode
	group bool
}{
	"/usr/bin/settee":                                    {0o755, false},
	"/usr/lib/systemd/system/settee.service":             {0o644, false},
	"/usr/lib/systemd/system/settee-frontend.service":    {0o644, false},
	"/usr/lib/systemd/system/settee-replication.service": {0o644, false},
	"/usr/lib/sysusers.d/settee.conf":                    {0o644, false},
	"/usr/share/settee/default.ini":                      {0o644, false},
	"/etc/settee":                                        {0o750 | fs.ModeDir, true},
	"/etc/settee/local.d":                                {0o750 | fs.ModeDir, true},
	"/etc/settee/local.ini":                              {0o640, true},
	"/etc/settee/local.env":                              {0o600, false},
	"/usr/lib/systemd/system":                            {0o755 | fs.ModeDir, false},
	"/usr/share/man/man1":                                {0o755 | fs.ModeDir, false},
	"/usr/share/man/man1/settee.1.gz":                    {0o644, false},
	"/usr/share/man/man1/settee-serve.1.gz":              {0o644, false},
	"/usr/share/man/man1/settee-secrets-new-key.1.gz":    {0o644, false},
	"/usr/share/bash-completion/completions/settee":      {0o644, false},
	"/usr/share/fish/vendor_completions.d/settee.fish":   {0o644, false},
}

// checkFiles checks the files of an installed package.
func checkFiles(t *testing.T, root, name, zsh string) {
	t.Helper()
	doc := "/usr/share/doc/" + name
	group := -1
	for line := range strings.Lines(read(t, root, "/etc/group")) {
		if fields := strings.Split(line, ":"); fields[0] == "settee" {
			group, _ = strconv.Atoi(fields[2])
		}
	}
	require.Positive(t, group, "the package makes the group")
	for path, want := range installed {
		info, err := os.Stat(filepath.Join(root, path))
		require.NoError(t, err)
		assert.Equal(t, want.mode, info.Mode(), path)
		owner, ok := info.Sys().(*syscall.Stat_t)
		require.True(t, ok)
		assert.Zero(t, owner.Uid, path)
		wantGroup := 0
		if want.group {
			wantGroup = group
		}
		assert.EqualValues(t, wantGroup, owner.Gid, path)
	}
	for _, path := range []string{
		zsh, doc + "/copyright", doc + "/NOTICE", doc + "/docs/kubernetes.yaml",
		doc + "/scripts/monitoring/alerts.yml", doc + "/scripts/monitoring/dashboard.json", doc + "/scripts/monitoring/prometheus.yml",
	} {
		assert.FileExists(t, filepath.Join(root, path))
	}
	checkLinks(t, filepath.Join(root, doc))
	store, err := os.Stat(filepath.Join(root, "/var/lib/settee"))
	require.NoError(t, err, "systemd is not needed for the folder")
	assert.Equal(t, 0o700|fs.ModeDir, store.Mode())
	assert.EqualValues(t, group, store.Sys().(*syscall.Stat_t).Gid)
	target, err := os.Readlink(filepath.Join(root, "/etc/settee/default.ini"))
	require.NoError(t, err)
	assert.Equal(t, "/usr/share/settee/default.ini", target)
	for _, unit := range []string{"settee", "settee-frontend", "settee-replication"} {
		text := read(t, root, "/usr/lib/systemd/system/"+unit+".service")
		assert.NotRegexp(t, "@[A-Za-z]+@", text, unit)
		assert.NotContains(t, text, "\nRestartPreventExitStatus=", "a node that the watchdog ends is started again")
		assert.Equal(t, unit == "settee-frontend", strings.Contains(text, "\nEnvironment=COUCHDB_NODE_TYPE_REPLICATION=false\n"), unit)
		assert.Equal(t, unit == "settee-replication", strings.Contains(text, "\nEnvironment=COUCHDB_NODE_TYPE_API_FRONTEND=false\n"), unit)
		assert.Equal(t, name == "settee-foundationdb", strings.Contains(text, "\nReadWritePaths=-/etc/foundationdb\n"), unit)
	}
	setting := "\nstore = pebble:///var/lib/settee\n"
	if name == "settee-foundationdb" {
		setting = "\nstore = fdb:///etc/foundationdb/fdb.cluster?prefix=settee\n"
	}
	assert.Contains(t, read(t, root, "/usr/share/settee/default.ini"), setting)
}

// link matches the target of a link in a document, without the place in the page.
var link = regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)

// checkLinks checks that all documents below a folder link only to what is there, or to the web.
func checkLinks(t *testing.T, dir string) {
	t.Helper()
	pages := 0
	files := os.DirFS(dir)
	require.NoError(t, fs.WalkDir(files, ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		pages++
		text, err := fs.ReadFile(files, path)
		for _, found := range link.FindAllSubmatch(text, -1) {
			if to := string(found[1]); !strings.Contains(to, "://") {
				assert.FileExists(t, filepath.Join(dir, filepath.Dir(path), to), "%s links to it", path)
			}
		}
		return err
	}))
	assert.Greater(t, pages, 5)
}

func read(t *testing.T, root, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

// checkUnits lets systemd check the units, if it is there.
func checkUnits(t *testing.T, root string) {
	t.Helper()
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Log("the units are not checked: systemd-analyze is missing")
		return
	}
	kill, err := exec.LookPath("kill") // for ExecReload=
	require.NoError(t, err)
	copyInto(t, root, kill)
	for _, unit := range []string{"settee", "settee-frontend", "settee-replication"} {
		path := filepath.Join(root, "/usr/lib/systemd/system", unit+".service")
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", "--root="+root, path).CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.NotContains(t, string(out), unit+".service:", "systemd warns")
		run(t, "systemd-analyze", "security", "--offline=true", "--threshold=20", path)
	}
}

// dpkg runs dpkg without a terminal and without answers to questions, as unattended upgrades do.
func dpkg(t *testing.T, root string, args ...string) string {
	t.Helper()
	return run(t, "dpkg", append([]string{"--root=" + root, "--force-depends"}, args...)...)
}

// administer writes what an administrator writes after the installation, and returns it by path.
func administer(t *testing.T, root string) map[string]string {
	t.Helper()
	own := map[string]string{
		"/etc/settee/local.ini":          read(t, root, "/etc/settee/local.ini") + "[chttpd]\nport = 5985\n",
		"/etc/settee/local.d/shares.ini": "[replicator.shares]\n_replicator = 50\n",
		"/etc/settee/local.env":          read(t, root, "/etc/settee/local.env") + "GOGC=50\n",
		"/etc/settee/admin.ini":          "[admins]\n",
		"/etc/settee/keys":               "a key\n",
	}
	for path, text := range own {
		require.NoError(t, os.WriteFile(filepath.Join(root, path), []byte(text), 0o640))
	}
	require.NoError(t, os.Chmod(filepath.Join(root, "/etc/settee/local.env"), 0o600))
	return own
}

func checkKept(t *testing.T, root string, own map[string]string, after string) {
	t.Helper()
	for path, text := range own {
		require.FileExists(t, filepath.Join(root, path), after)
		assert.Equal(t, text, read(t, root, path), "%s after %s", path, after)
	}
}

func TestDebian(t *testing.T) {
	t.Parallel()
	needs(t, "dpkg")
	needsRoot(t)
	for name, path := range packages(t, runtime.GOARCH+".deb") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := newRoot(t)
			dpkg(t, root, "--install", path)
			checkFiles(t, root, name, "/usr/share/zsh/vendor-completions/_settee")
			checkUnits(t, root)
			if name == "settee" {
				checkNode(t, root)
			}
			assert.Empty(t, run(t, "dpkg-query", "--admindir="+root+"/var/lib/dpkg", "--show", "--showformat=${Conffiles}", name),
				"dpkg asks about conffiles that an administrator has changed")

			own := administer(t, root)
			dpkg(t, root, "--install", path)
			checkKept(t, root, own, "an upgrade")
			checkFiles(t, root, name, "/usr/share/zsh/vendor-completions/_settee")

			dpkg(t, root, "--remove", name)
			assert.NoFileExists(t, filepath.Join(root, "/usr/bin/settee"))
			checkKept(t, root, own, "a removal")
			dpkg(t, root, "--purge", name)
			assert.NoFileExists(t, filepath.Join(root, "/etc/settee/local.ini"))
			assert.NoFileExists(t, filepath.Join(root, "/etc/settee/local.env"))
			assert.FileExists(t, filepath.Join(root, "/etc/settee/keys"), "a purge removes what the package has made, and no other file")
			assert.Equal(t, name == "settee", exists(filepath.Join(root, "/var/lib/settee")), "a store stays, an empty folder does not")
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// The two packages have the same files. One takes the place of the other, with its configuration, and a purge of the one
// that was replaced takes nothing from the other.
func TestDebianReplaces(t *testing.T) {
	t.Parallel()
	needs(t, "dpkg")
	needsRoot(t)
	all := packages(t, runtime.GOARCH+".deb")
	if len(all) < 2 {
		t.Skip("there is no package with the FoundationDB engine")
	}
	for _, names := range [][2]string{{"settee", "settee-foundationdb"}, {"settee-foundationdb", "settee"}} {
		before, after := names[0], names[1]
		t.Run("to "+after, func(t *testing.T) {
			t.Parallel()
			root := newRoot(t)
			dpkg(t, root, "--install", all[before])
			own := administer(t, root)
			dpkg(t, root, "--install", all[after])
			list := dpkg(t, root, "--list")
			assert.Regexp(t, "(?m)^ii +"+after+" ", list)
			assert.NotRegexp(t, "(?m)^ii +"+before+" ", list)
			checkKept(t, root, own, "the change of packages")
			checkFiles(t, root, after, "/usr/share/zsh/vendor-completions/_settee")

			dpkg(t, root, "--purge", before)
			checkKept(t, root, own, "the purge of the package that was replaced")
			checkFiles(t, root, after, "/usr/share/zsh/vendor-completions/_settee")

			for path := range own {
				if path != "/etc/settee/local.ini" && path != "/etc/settee/local.env" {
					require.NoError(t, os.Remove(filepath.Join(root, path)))
				}
			}
			dpkg(t, root, "--purge", after)
			assert.NoDirExists(t, filepath.Join(root, "/etc/settee"), "nobody uses it")
			assert.NoDirExists(t, filepath.Join(root, "/var/lib/settee"), "it has no store")
		})
	}
}

func TestRPM(t *testing.T) {
	t.Parallel()
	needs(t, "rpm")
	needsRoot(t)
	for name, path := range packages(t, map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]+".rpm") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := newRoot(t)
			install := []string{"--root", root, "--nodeps", "--ignoresize"}
			run(t, "rpm", append(install, "--install", path)...)
			checkFiles(t, root, name, "/usr/share/zsh/site-functions/_settee")
			own := administer(t, root)
			run(t, "rpm", append(install, "--install", "--replacepkgs", path)...)
			checkKept(t, root, own, "an upgrade")
			run(t, "rpm", "--root", root, "--nodeps", "--erase", name)
			assert.NoFileExists(t, filepath.Join(root, "/usr/bin/settee"))
			checkKept(t, root, own, "a removal")
		})
	}
}

// A tarball has the program and its documents, a checksum, and a list of the modules in the program.
func TestTarball(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "git", "make", "tar", "gzip", "sha256sum"} {
		needs(t, tool)
	}
	from, err := built()
	require.NoError(t, err)
	pattern := "settee-*-" + runtime.GOOS + "-" + runtime.GOARCH + ".tar.gz"
	found, err := filepath.Glob(filepath.Join(from, pattern))
	require.NoError(t, err)
	if len(found) == 0 { // it has only packages
		from = t.TempDir()
		run(t, "./tarballs", from, runtime.GOOS+"/"+runtime.GOARCH)
		found, err = filepath.Glob(filepath.Join(from, pattern))
		require.NoError(t, err)
	}
	require.Len(t, found, 1)
	checkSums(t, from)
	dir := t.TempDir()
	run(t, "tar", "-C", dir, "-xf", found[0])
	top := filepath.Join(dir, strings.TrimSuffix(filepath.Base(found[0]), ".tar.gz"))
	for _, name := range []string{"LICENSE", "NOTICE", "README.md", "docs/operations.md", "man/settee-serve.1", "settee.bash", "settee.ini"} {
		assert.FileExists(t, filepath.Join(top, name))
	}
	program := filepath.Join(top, "settee")
	assert.Regexp(t, `^settee \S+\n`, run(t, program, "version"))

	list, err := os.ReadFile(strings.TrimSuffix(found[0], ".tar.gz") + ".cdx.json")
	require.NoError(t, err)
	var bill struct {
		Components []struct{ Purl string }
	}
	require.NoError(t, json.Unmarshal(list, &bill))
	var listed []string
	for _, c := range bill.Components {
		listed = append(listed, c.Purl)
	}
	assert.Contains(t, listed, "pkg:golang/stdlib@"+strings.TrimPrefix(runtime.Version(), "go"))
	modules := 0
	for line := range strings.Lines(run(t, "go", "version", "-m", program)) {
		if fields := strings.Fields(line); len(fields) >= 3 && fields[0] == "dep" {
			assert.Contains(t, listed, "pkg:golang/"+fields[1]+"@"+fields[2])
			modules++
		}
	}
	assert.Greater(t, modules, 10)
	assert.Equal(t, 3, strings.Count(string(list), `"purl": "pkg:npm/`))
}

// checkSums checks the checksums of the files in a folder.
func checkSums(t *testing.T, dir string) {
	t.Helper()
	check := exec.Command("sha256sum", "--check", "--quiet", "SHA256SUMS")
	check.Dir = dir
	printed, err := check.CombinedOutput()
	require.NoError(t, err, "%s", printed)
}

// The files of a release depend on its commit alone: two clones build the same, byte for byte. The first one is the
// repository, if it has nothing else than the commit. make nightly compiles everything anew for the second one; otherwise it
// takes compiled packages from the cache.
func TestRelease(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"bash", "git", "make", "tar", "gzip", "sha256sum"} {
		needs(t, tool)
	}
	second := t.TempDir()
	clone := requireRelease(t, second)
	first, err := built()
	require.NoError(t, err)
	if made == "" || differs() { // it has other files
		first = t.TempDir()
		requireRelease(t, first)
	}
	sums := read(t, first, "SHA256SUMS")
	assert.Equal(t, sums, read(t, second, "SHA256SUMS"))
	for _, name := range []string{
		`settee_[^ ]*\.deb`, `settee-[^ ]*\.rpm`, `settee-[^ ]*-linux-[^ ]*\.tar\.gz`, `settee-[^ ]*\.cdx\.json`, `settee-[^ ]*-image-context\.tar\.gz`,
	} {
		assert.Regexp(t, `(?m)  `+name+`$`, sums)
	}
	checkSums(t, second)

	// What differs from the commit is not built, and files of another build are not listed.
	require.NoError(t, os.WriteFile(filepath.Join(clone, "main.go"), nil, 0o600))
	for _, dir := range []string{t.TempDir(), second} {
		printed, err := release(clone, dir).CombinedOutput()
		require.Error(t, err)
		assert.Regexp(t, `differ from it:\n\?\? main\.go|is not empty`, string(printed))
	}
}

// requireRelease builds a release in a new clone, and returns the clone.
func requireRelease(t *testing.T, dir string) (clone string) {
	t.Helper()
	clone = filepath.Join(t.TempDir(), "clone")
	run(t, "git", "clone", "--quiet", "../..", clone)
	cmd := release(clone, dir)
	if os.Getenv("SETTEE_ROUNDS") == "all" {
		cmd.Env = append(cmd.Env, "GOCACHE="+t.TempDir())
	}
	printed, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", printed)
	return clone
}
