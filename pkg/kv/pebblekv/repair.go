package pebblekv

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"settee/pkg/kv"
	"settee/pkg/kv/internal/optimistic"
)

// Names in the directory of a store whose damaged log is repaired.
const (
	// cuttingName is a file that is there while a log is cut. A store is not opened then.
	cuttingName = "cutting"
	// keptPrefix and the number of the log are the name of the directory with the files as they were.
	keptPrefix = "damaged-"
)

// Repair is what RepairLog has done to a damaged log. The zero value means that no log was damaged.
type Repair struct {
	// Log is the name of the log.
	Log string
	// Bits are the offsets of the bytes in which one bit was put right. If there are any, nothing was lost.
	Bits []int
	// Cut is the size to which the log was cut otherwise. Later logs were removed.
	Cut int
	// Kept is the directory with the logs as they were.
	Kept string
}

// RepairLog makes a store whose log is damaged one that can be opened. If single bits make the log right, it puts them right.
// Otherwise it gives up what the log has from the damage on, and all later logs: the store is then what it was before
// those commits, and its version is raised as that of a restored backup, so that no version is used a second time. The
// files are kept as they were.
//
// After an error the store may not be opened until the function is called again and succeeds.
func RepairLog(storeURL string) (done Repair, err error) {
	u, err := url.Parse(storeURL)
	if err != nil || u.Scheme != "pebble" {
		return Repair{}, errors.New("only a store in a directory (pebble:DIRECTORY) has a log that can be repaired")
	}
	dir, err := directory(u)
	if err != nil {
		return Repair{}, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return Repair{}, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("repairing the log of the store %s: %w", dir, err)
		}
	}()
	if err := errors.Join(exists(dir, vfs.Default), checkOwner(dir)); err != nil {
		return Repair{}, err
	}
	lock, err := pebble.LockDirectory(dir, vfs.Default)
	if err != nil {
		return Repair{}, lockError(dir, err)
	}
	done, err = repairLog(dir)
	if err = errors.Join(err, lock.Close()); err != nil {
		return done, err
	}
	marker := filepath.Join(dir, cuttingName)
	if _, err := os.Stat(marker); errors.Is(err, os.ErrNotExist) {
		return done, nil
	}
	s, err := openStorage(dir, Options{Options: kv.Options{Existing: true}, cutting: true})
	if err != nil {
		return done, err
	}
	if err := errors.Join(optimistic.Raise(s, advance), s.Close()); err != nil {
		return done, err
	}
	return done, errors.Join(os.Remove(marker), syncDir(dir))
}

func repairLog(dir string) (Repair, error) {
	var d *damage
	err := checkFiles(vfs.Default, dir)
	switch {
	case err == nil:
		return Repair{}, nil
	case !errors.As(err, &d) || !d.isLog:
		return Repair{}, err
	}
	number, _ := logNumber(d.file)
	done := Repair{Log: d.file, Kept: filepath.Join(dir, fmt.Sprintf("%s%06d", keptPrefix, number))}
	path := filepath.Join(dir, d.file)
	log, err := os.ReadFile(path)
	if err != nil {
		return Repair{}, err
	}
	if err := os.MkdirAll(done.Kept, 0o700); err != nil {
		return Repair{}, err
	}
	if err := errors.Join(writeSynced(filepath.Join(done.Kept, d.file), log), syncDir(done.Kept), syncDir(dir)); err != nil {
		return Repair{}, err
	}
	bits, tail := wrongBits(log, uint32(number))
	if tail.damage(log) == "" {
		done.Bits = bits
		return done, rewrite(vfs.Default, path, log, bits)
	}
	done.Cut = d.from
	return done, cutLog(dir, number, log[:d.from], done.Kept)
}

// cutLog replaces a log by its beginning, and moves the later ones to another directory. The marker is there before anything
// changes.
func cutLog(dir string, number uint64, beginning []byte, kept string) error {
	if err := errors.Join(writeSynced(filepath.Join(dir, cuttingName), nil), syncDir(dir)); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		later, isLog := logNumber(entry.Name())
		from := filepath.Join(dir, entry.Name())
		switch {
		case isLog && later > number:
			err = os.Rename(from, filepath.Join(kept, entry.Name()))
		case isLog && later == number:
			short := filepath.Join(kept, "beginning")
			if err = writeSynced(short, beginning); err == nil {
				err = os.Rename(short, from)
			}
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(syncDir(kept), syncDir(dir))
}

func writeSynced(path string, content []byte) (err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Write(content); err != nil {
		return err
	}
	return file.Sync()
}
