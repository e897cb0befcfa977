package pebblekv

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"settee/pkg/kv"
	"settee/pkg/kv/internal/optimistic"
)

// A backup is a tar archive:
//
//	BACKUP        JSON: format, created
//	store/NAME    a file of a Pebble checkpoint
//	...
//	SHA256SUMS    the sums of all files before, as sha256sum writes and checks them
//
// SHA256SUMS is the last file, so an archive without it is not complete.
const (
	backupFormat = 1
	aboutName    = "BACKUP"
	filesName    = "store/"
	sumsName     = "SHA256SUMS"
	// mostSums is the maximum size of SHA256SUMS and BACKUP.
	mostSums = 64 << 20
)

// Directories in the directory of a store, besides Pebble's files.
const (
	// checkpointPrefix begins the names of checkpoints. They are removed after the backup, or when the store is opened.
	checkpointPrefix = "backup-"
	// restoringName has the files of a backup that is being restored. A store is not opened while it is there.
	restoringName = "restoring"
)

// advance is the number of versions by which Restore raises the version of a store. The commits that the original has
// made since the backup are less: at 10,000 per second these are three years.
const advance = int64(1) << 40

type about struct {
	Format  int       `json:"format"`
	Created time.Time `json:"created"`
}

// backups is the state of a store's backups.
type backups struct {
	running sync.Mutex
	// using is held while Pebble makes a checkpoint. It must be open then.
	using  sync.Mutex
	closed bool
}

var _ kv.BackupWriter = database{}

// Backup implements [kv.BackupWriter]. The archive is what [Restore] reads. It makes a checkpoint in a directory below
// the store's, of links to its tables, and removes it at the end. Meanwhile tables that the store no longer needs take
// up space.
func (db database) Backup(ctx context.Context, w io.Writer) (err error) {
	s := db.storage
	if !s.backups.running.TryLock() {
		return kv.ErrBackupRunning
	}
	defer s.backups.running.Unlock()
	dir := s.fence.PathJoin(s.dir, checkpointPrefix+rand.Text())
	defer func() {
		err = errors.Join(err, s.fence.FS.RemoveAll(dir))
		if err != nil {
			err = fmt.Errorf("backing up the store: %w", err)
		}
	}()
	if err := s.checkpoint(dir); err != nil {
		return err
	}
	return writeArchive(ctx, w, s.fence.FS, dir)
}

func (s *storage) checkpoint(dir string) error {
	s.backups.using.Lock()
	defer s.backups.using.Unlock()
	if s.backups.closed {
		return kv.ErrClosed
	}
	if err := s.fence.Err(); err != nil {
		return err // Pebble's files are not what the store is
	}
	// The log need not be flushed: a commit that was acknowledged is in it. All its records are batches of the store then,
	// each written after the one before it is durable.
	return s.db.Checkpoint(dir)
}

// tidy removes the checkpoints of backups that a process has not ended. It returns an error for a directory that a restore
// or the cut of a log has left unfinished. cutting means that the cut is being finished.
func tidy(files vfs.FS, dir string, cutting bool) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		switch {
		case strings.HasPrefix(name, checkpointPrefix):
			if err := files.RemoveAll(files.PathJoin(dir, name)); err != nil {
				return err
			}
		case name == restoringName:
			return errors.New("a backup was not completely restored here: empty the directory, and restore it again")
		case name == cuttingName && !cutting:
			return errors.New("its damaged log was not completely cut: run settee check --repair-log again")
		}
	}
	return nil
}

// writeArchive writes the files of a directory.
func writeArchive(ctx context.Context, w io.Writer, files vfs.FS, dir string) error {
	names, err := files.List(dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	text, err := json.Marshal(about{backupFormat, time.Now().UTC()})
	if err != nil {
		return err
	}
	out, sums := tar.NewWriter(w), new(bytes.Buffer)
	if err := addFile(out, sums, aboutName, int64(len(text)), bytes.NewReader(text)); err != nil {
		return err
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := addStored(out, sums, files, files.PathJoin(dir, name), filesName+name); err != nil {
			return err
		}
	}
	if err := addFile(out, nil, sumsName, int64(sums.Len()), sums); err != nil {
		return err
	}
	return out.Close()
}

func addStored(out *tar.Writer, sums *bytes.Buffer, files vfs.FS, path, name string) (err error) {
	file, err := files.Open(path, vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return addFile(out, sums, name, info.Size(), file)
}

// addFile writes a file, and its line in sums.
func addFile(out *tar.Writer, sums *bytes.Buffer, name string, size int64, content io.Reader) error {
	err := out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: time.Now().Truncate(time.Second)})
	if err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(out, sum), content, size); err != nil {
		return err
	}
	if sums != nil {
		fmt.Fprintf(sums, "%x  %s\n", sum.Sum(nil), name)
	}
	return nil
}

// VerifyBackup reads a backup to its end, and checks that it is complete and that each file has its sum. It returns the size in
// bytes of what it has read.
func VerifyBackup(r io.Reader) (size int64, err error) {
	return readArchive(r, func(string, io.Reader) error { return nil })
}

// readArchive reads a backup and calls take for each file of the store. An error says that what was taken must not be
// used. The size is that of what was read, in bytes.
func readArchive(r io.Reader, take func(name string, content io.Reader) error) (size int64, err error) {
	counted := &countingReader{from: r}
	err = readEntries(counted, take)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("the backup is not complete: it ends after %d bytes. Copy it again, or make another one", counted.bytes)
	}
	return counted.bytes, err
}

// countingReader counts the bytes that are read.
type countingReader struct {
	from  io.Reader
	bytes int64
}

func (c *countingReader) Read(into []byte) (int, error) {
	n, err := c.from.Read(into)
	c.bytes += int64(n)
	return n, err
}

// readEntries is readArchive with io.ErrUnexpectedEOF for an archive that is cut off.
func readEntries(r io.Reader, take func(name string, content io.Reader) error) error {
	in, sums, complete := tar.NewReader(r), new(bytes.Buffer), false
	for n := 0; ; n++ {
		header, err := in.Next()
		switch {
		case err == io.EOF && complete:
			_, err := io.Copy(io.Discard, r) // what pads the archive
			return err
		case err == io.EOF:
			return io.ErrUnexpectedEOF // the sums are missing
		case err != nil:
			return fmt.Errorf("reading the backup: %w", err)
		case complete || header.Typeflag != tar.TypeReg:
			return fmt.Errorf("not a backup of settee: it has %q", header.Name)
		}
		sum := sha256.New()
		content := io.TeeReader(in, sum)
		name, isStored := strings.CutPrefix(header.Name, filesName)
		switch {
		case n == 0:
			err = readAbout(header, content)
		case header.Name == sumsName:
			err = compareSums(header, in, sums.Bytes())
			complete = true
		case !isStored || name == "" || path.Base(name) != name || name == "." || name == ".." || strings.ContainsAny(name, `/\`):
			err = fmt.Errorf("not a backup of settee: it has %q", header.Name)
		default:
			err = take(name, content)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, content) // what take has left
		}
		if err != nil {
			return err
		}
		fmt.Fprintf(sums, "%s  %s\n", hex.EncodeToString(sum.Sum(nil)), header.Name)
	}
}

func readAbout(header *tar.Header, content io.Reader) error {
	var a about
	if header.Name != aboutName || header.Size > mostSums {
		return errors.New("not a backup of settee")
	}
	if err := json.NewDecoder(content).Decode(&a); err != nil {
		return fmt.Errorf("reading the backup: %w", err)
	}
	if a.Format != backupFormat {
		return fmt.Errorf("the backup has format %d, but this version of settee knows only %d", a.Format, backupFormat)
	}
	return nil
}

// compareSums compares the sums in the archive with those that were computed.
func compareSums(header *tar.Header, content io.Reader, computed []byte) error {
	if header.Size > mostSums {
		return errors.New("not a backup of settee")
	}
	stored, err := io.ReadAll(content)
	if err != nil {
		return fmt.Errorf("reading the backup: %w", err)
	}
	want, have := bytes.Split(stored, []byte("\n")), bytes.Split(computed, []byte("\n"))
	for i, line := range have {
		if i >= len(want) || !bytes.Equal(line, want[i]) {
			_, name, _ := bytes.Cut(line, []byte("  "))
			return fmt.Errorf("the backup is damaged: %q is not what its sum says", name)
		}
	}
	if len(want) != len(have) {
		return errors.New("the backup is damaged: a file is missing")
	}
	return nil
}

// RestoreURL is [Restore] for the URL of a store.
func RestoreURL(r io.Reader, storeURL string) error {
	u, err := url.Parse(storeURL)
	if err != nil {
		return fmt.Errorf("store %q is not a URL: %w", storeURL, err)
	}
	if u.Scheme != "pebble" {
		return fmt.Errorf("store %q: only a store in a directory (pebble:DIRECTORY) can be restored from such a backup", u.Redacted())
	}
	dir, err := directory(u)
	if err != nil {
		return err
	}
	return Restore(r, dir)
}

// Restore makes a store of a backup in dir, which must be empty or missing. The files are checked before there is a
// store: after an error there is none. The version of the store is raised above all that the original has had since the
// backup, so that no version is used a second time.
func Restore(r io.Reader, dir string) (err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("restoring the store %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("restoring the store %s: %w", abs, err)
		}
	}()
	if err := checkOwner(abs); err != nil {
		return err
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return err
	}
	if entries, err := os.ReadDir(abs); err != nil {
		return err
	} else if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != "lost+found" }) {
		return errors.New("the directory is not empty")
	}
	restoring := filepath.Join(abs, restoringName)
	if err := os.Mkdir(restoring, 0o700); err != nil {
		return err
	}
	_, err = readArchive(r, func(name string, content io.Reader) error { return extract(filepath.Join(restoring, name), content) })
	if err == nil {
		err = raise(restoring)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(restoring))
	}
	return move(restoring, abs)
}

func extract(path string, content io.Reader) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := io.Copy(file, content); err != nil {
		return err
	}
	return file.Sync()
}

// raise opens a restored store, which checks that Pebble can, and raises its version.
func raise(dir string) error {
	if err := syncDir(dir); err != nil {
		return err
	}
	s, err := openStorage(dir, Options{Options: kv.Options{Existing: true}})
	if err != nil {
		return err
	}
	return errors.Join(optimistic.Raise(s, advance), s.Close())
}

// move moves the files of a store to the directory above. Pebble's markers come last: until then there is no store.
func move(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	slices.SortStableFunc(entries, func(a, b os.DirEntry) int {
		return boolToInt(strings.HasPrefix(a.Name(), "marker.")) - boolToInt(strings.HasPrefix(b.Name(), "marker."))
	})
	for _, entry := range entries {
		if err := os.Rename(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
			return err
		}
	}
	if err := syncDir(to); err != nil {
		return err
	}
	if err := os.Remove(from); err != nil {
		return err
	}
	return syncDir(to)
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func syncDir(path string) error {
	dir, err := vfs.Default.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
