// Package cgroupundo writes control files of cgroups so that their former values can be restored,
// even after a crash: it notes the value on the cgroup (an extended attribute) before each write. A
// restore keeps values that another process has written since.
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

// Control is a control file of a cgroup, with its value now and before the agent wrote to it.
type Control struct {
	File  cgroup.LimitFile
	group *cgroup.Group
	// Now is the current value. Before is the value before the agent wrote to the file; it equals Now
	// unless the agent wrote Now.
	Now, Before cgroup.Limit
	// Ours reports that the agent wrote Now, in this process or an earlier one.
	Ours bool
	// earlier values of the note, oldest first, that Set keeps while values are unconfirmed
	earlier []cgroup.Limit
}

// Read reads a control file and its note. The Group must stay open while the Control is used. Read
// returns os.ErrNotExist if the file does not exist.
func Read(g *cgroup.Group, file cgroup.LimitFile) (c Control, err error) {
	c = Control{group: g, File: file}
	if c.Now, err = g.Limit(file, make([]byte, 64)); err != nil {
		return c, err
	}
	c.Before = c.Now
	text, noted, err := g.Note(noteName(file))
	if err != nil {
		return c, fmt.Errorf("read note of %s (required before writing the file): %w", file, err)
	}
	if before, written, ok := parse(text); noted && ok {
		if slices.Contains(written, c.Now) {
			c.Before, c.Ours = before, true
		}
		// all values of the note except Before, the latest two last
		c.earlier = slices.DeleteFunc(slices.Concat(written[2:], written[:2]),
			func(l cgroup.Limit) bool { return l == before })
	}
	return c, nil
}

// noteName returns the name of a file's note. A process that may only write to the cgroup cannot
// set such a note to have a value of its choice "restored". Package selfprotect uses the plain name
// "memory.min", which such a process can set.
func noteName(file cgroup.LimitFile) string { return cgroup.Trusted + "before." + string(file) }

// Set writes a value; a memory value is cut to whole pages, as the kernel does. changed is false if
// the file has the value already. Set first writes the note "BEFORE NOW VALUE", so that after a
// crash between the note and the write the file's value is still recognized as the agent's own.
//
// unconfirmed means that another program that may write the file, such as systemd, received an
// earlier value and has not confirmed the current one. It may write any value that it received. So
// the note keeps the values from before and, as far as they fit, all values written since, until
// Acknowledge is called.
func (c *Control) Set(value cgroup.Limit, unconfirmed bool) (changed bool, err error) {
	if value = Cut(c.File, value); c.Now == value {
		return false, nil
	}
	if err := c.group.SetNote(noteName(c.File), c.note(value, unconfirmed)); err != nil {
		return false, fmt.Errorf("note value of %s (required before writing the file): %w", c.File, err)
	}
	if err := c.group.SetLimit(c.File, value); err != nil {
		return false, err
	}
	c.Now, c.Ours = value, true
	return true, nil
}

func (c *Control) note(value cgroup.Limit, unconfirmed bool) string {
	text := c.Before.String() + " " + c.Now.String() + " " + value.String()
	if !unconfirmed && c.Ours {
		return text
	}
	has := []cgroup.Limit{c.Now, value}
	for _, limit := range c.earlier { // a value of another process may be unconfirmed too
		if more := text + " " + limit.String(); !slices.Contains(has, limit) && len(more) <= maxBytes &&
			len(has) < maxFields-1 {
			text, has = more, append(has, limit)
		}
	}
	return text
}

// Acknowledge records that the other program that may write the file has confirmed the current value.
func Acknowledge(g *cgroup.Group, file cgroup.LimitFile) error {
	text, noted, err := g.Note(noteName(file))
	if _, written, ok := parse(text); err != nil || !noted || !ok || len(written) == 2 {
		return err
	}
	c, err := Read(g, file)
	if err != nil {
		return err
	}
	fields := strings.Split(text, " ")[:3]
	if c.Ours { // Now may be one of the dropped values
		fields[1], fields[2] = c.Now.String(), c.Now.String()
	}
	return g.SetNote(noteName(file), strings.Join(fields, " "))
}

// Cut returns a value as the file will show it: the kernel cuts memory values to whole pages (v6.12
// mm/page_counter.c page_counter_memparse).
func Cut(file cgroup.LimitFile, value cgroup.Limit) cgroup.Limit {
	if strings.HasPrefix(string(file), "memory.") {
		value.Bytes -= value.Bytes % uint64(os.Getpagesize())
	}
	return value
}

// Find reads a control file that has a note. noted is false without a note, and if the kernel does
// not support notes. For a missing file Find removes the note and returns no error.
func Find(g *cgroup.Group, file cgroup.LimitFile) (c Control, noted bool, err error) {
	if _, noted, err = g.Note(noteName(file)); errors.Is(err, unix.EOPNOTSUPP) {
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

// Restore restores the former value if the file still has the agent's value. changed reports
// whether it wrote. The note stays until Forget, so that Restore can be repeated.
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

// Forget removes the note of a file.
func Forget(g *cgroup.Group, file cgroup.LimitFile) error { return g.RemoveNote(noteName(file)) }

// Limits of a note (cgroup.Group.SetNote). Five fields of any length fit.
const (
	maxBytes  = 128
	maxFields = 16
)

// parse parses a note of this, an older or a newer agent: the former value and at least two values
// of the agent. It accepts only values that the kernel could have reported.
func parse(text string) (before cgroup.Limit, written []cgroup.Limit, ok bool) {
	f := strings.Split(text, " ")
	if len(f) < 3 || len(f) > maxFields {
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
