//go:build unix

package pebblekv

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// checkOwner returns an error if this process is root's and dir belongs to another user. Root may write there, but what root
// writes cannot be read by that user, whose service would not start again.
func checkOwner(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known || os.Geteuid() != 0 || stat.Uid == 0 {
		return nil
	}
	name := "#" + strconv.FormatUint(uint64(stat.Uid), 10)
	if owner, err := user.LookupId(name[1:]); err == nil {
		name = owner.Username
	}
	return fmt.Errorf("the directory belongs to the user %s, who could not read what root writes: "+
		"run the command as this user (sudo -u %s settee ...)", name, name)
}
