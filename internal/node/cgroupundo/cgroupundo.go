// Package cgroupundo writes control files of cgroups so that what was there before can be put back,
// after a crash too: it is noted on the cgroup (an extended attribute) before anything is written.
// A value that another process has written since stays.
package cgroupundo

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"jettison/cgroup"
)

// Control is one control file of one cgroup, as it is and as it was before the agent wrote to it.
type Control struct {
	File  cgroup.LimitFile
	group *cgroup.Group
	// Now is what the file says. Before is what it said before the agent wrote to it: Now, unless that
	// is the agent's own.
	Now, Before cgroup.Limit
	// Ours: Now was written by the agent, by this process or one before it.
	Ours bool
	// what Set is to keep of the note, where not all was told: what came first, first
	told []cgroup.Limit
}

// Read reads a control file and its note. The Group has to stay open as long as the Control is
// used. os.ErrNotExist: there is no such file here.
func Read(g *cgroup.Group, file cgroup.LimitFile) (c Control, err error) {
	c = Control{group: g, File: file}
	if c.Now, err = g.Limit(file, make([]byte, 64)); err != nil {
		return c, err
	}
	c.Before = c.Now
	text, noted, err := g.Note(name(file))
	if err != nil {
		return c, fmt.Errorf("read what is noted of %s: %w: without notes nothing is written", file, err)
	}
	if before, written, ok := parse(text); noted && ok {
		if slices.Contains(written, c.Now) {
			c.Before, c.Ours = before, true
		}
		// somebody else's
		c.told = slices.DeleteFunc(slices.Concat(written[2:], written[:2]),
			func(l cgroup.Limit) bool { return l == before })
	}
	return c, nil
}

// name is where a file's note is kept: where none can leave one who may only write to the cgroup,
// and have a value of its own choice "put back". Package protect keeps its own as "memory.min",
// where anybody can.
func name(file cgroup.LimitFile) string { return cgroup.Trusted + "before." + string(file) }

// Set writes a value; one of memory is cut to whole pages, as the kernel would cut it. changed is
// false where it is there already. What was there is noted first: "BEFORE NOW VALUE", so that a
// crash between the note and the write leaves what is there known for the agent's own.
//
// untold: somebody who may write the file again by himself was told of an earlier value, and is not
// known to know what is there now. What the note had when that began stays in it, for it is the
// agent's own as well, until Told, and as far as there is room all that was written since: who does
// not answer may have heard all the same.
func (c *Control) Set(value cgroup.Limit, untold bool) (changed bool, err error) {
	if value = Cut(c.File, value); c.Now == value {
		return false, nil
	}
	if err := c.group.SetNote(name(c.File), c.note(value, untold)); err != nil {
		return false, fmt.Errorf("note what %s was: %w: without that it is not written", c.File, err)
	}
	if err := c.group.SetLimit(c.File, value); err != nil {
		return false, err
	}
	c.Now, c.Ours = value, true
	return true, nil
}

func (c *Control) note(value cgroup.Limit, untold bool) string {
	text := c.Before.String() + " " + c.Now.String() + " " + value.String()
	if !untold && c.Ours {
		return text
	}
	has := []cgroup.Limit{c.Now, value}
	for _, told := range c.told { // another's value he may not know either
		if more := text + " " + told.String(); !slices.Contains(has, told) && len(more) <= mostBytes &&
			len(has) < mostFields-1 {
			text, has = more, append(has, told)
		}
	}
	return text
}

// Told notes that what is there now is known to who may write the file again by himself.
func Told(g *cgroup.Group, file cgroup.LimitFile) error {
	text, noted, err := g.Note(name(file))
	if _, written, ok := parse(text); err != nil || !noted || !ok || len(written) == 2 {
		return err
	}
	c, err := Read(g, file)
	if err != nil {
		return err
	}
	fields := strings.Split(text, " ")[:3]
	if c.Ours { // it may be one of those that go
		fields[1], fields[2] = c.Now.String(), c.Now.String()
	}
	return g.SetNote(name(file), strings.Join(fields, " "))
}

// Cut is a value as a file will say it: the kernel cuts memory to whole pages (v6.12
// mm/page_counter.c page_counter_memparse).
func Cut(file cgroup.LimitFile, value cgroup.Limit) cgroup.Limit {
	if strings.HasPrefix(string(file), "memory.") {
		value.Bytes -= value.Bytes % uint64(os.Getpagesize())
	}
	return value
}

// Find is Read of a file that something is noted of. Not noted: nothing is, also where the kernel
// has no notes. A file that is not there is no error: what is noted of it is removed.
func Find(g *cgroup.Group, file cgroup.LimitFile) (c Control, noted bool, err error) {
	if _, noted, err = g.Note(name(file)); errors.Is(err, unix.EOPNOTSUPP) {
		return c, false, nil
	}
	if err != nil || !noted {
		return c, false, err
	}
	c, err = Read(g, file)
	if errors.Is(err, os.ErrNotExist) {
		return c, false, Forget(g, file)
	}
	return c, err == nil, err
}

// Restore puts back what was there before, where the agent's own value is there still. changed: a
// value was put back. What is noted stays, for Forget: until then it can be put back once more.
func (c *Control) Restore() (changed bool, err error) {
	if !c.Ours || c.Now == c.Before {
		return false, nil
	}
	if err := c.group.SetLimit(c.File, c.Before); err != nil {
		return false, err
	}
	c.Now = c.Before
	return true, nil
}

// Forget removes what is noted of a file.
func Forget(g *cgroup.Group, file cgroup.LimitFile) error { return g.RemoveNote(name(file)) }

// A note has so many bytes and fields at most (cgroup.Group.SetNote). Five fields fit however long
// each is.
const (
	mostBytes  = 128
	mostFields = 16
)

// parse reads what Set noted, as an older or newer agent may have: what was there before, and two
// values or more of the agent's. Nothing is taken from it that the kernel would not have said.
func parse(text string) (before cgroup.Limit, written []cgroup.Limit, ok bool) {
	f := strings.Split(text, " ")
	if len(f) < 3 || len(f) > mostFields {
		return before, nil, false
	}
	limits := make([]cgroup.Limit, len(f))
	for i := range f {
		l, err := cgroup.ParseLimit([]byte(f[i]))
		if err != nil {
			return before, nil, false
		}
		limits[i] = l
	}
	return limits[0], limits[1:], true
}
