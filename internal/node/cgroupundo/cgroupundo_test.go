package cgroupundo

import (
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"jettison/cgroup"
)

// tree creates a cgroup of plain files that supports notes.
func tree(t testing.TB, files map[cgroup.LimitFile]string) (g *cgroup.Group, dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		write(t, dir, name, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	fs, err := cgroup.OpenTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fs.Close() })
	if g, err = fs.Group(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	if err := g.SetNote(cgroup.Trusted+"try", ""); err != nil {
		t.Skip("no extended attributes here: ", err)
	}
	return g, dir
}

func write(t testing.TB, dir string, name cgroup.LimitFile, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, string(name)), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func fileText(t testing.TB, dir string, name cgroup.LimitFile) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, string(name)))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func limit(bytes uint64) cgroup.Limit { return cgroup.Limit{Bytes: bytes} }

const file = cgroup.FileMemoryMax

// read reads the control file as a newly started process does.
func read(t testing.TB, g *cgroup.Group) Control {
	t.Helper()
	c, err := Read(g, file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// restore restores the former values and removes the notes, as a caller does that has no other program to notify.
func restore(g *cgroup.Group, files ...cgroup.LimitFile) (changed []cgroup.LimitFile, err error) {
	for _, file := range files {
		c, noted, err := Find(g, file)
		if err != nil {
			return changed, err
		}
		if !noted {
			continue
		}
		put, err := c.Restore()
		if err == nil {
			err = Forget(g, file)
		}
		if err != nil {
			return changed, err
		}
		if put {
			changed = append(changed, file)
		}
	}
	return changed, nil
}

// The former value survives any number of values and processes.
func TestFormerValueIsRestored(t *testing.T) {
	for _, before := range []string{"max", "8192", "0"} {
		g, dir := tree(t, map[cgroup.LimitFile]string{file: before + "\n"})
		if c := read(t, g); c.Ours || c.Before != c.Now {
			t.Errorf("control of an unwritten file = %+v, want Before = Now and not ours", c)
		}
		for _, value := range []uint64{1 << 20, 1 << 30, 4096, 1 << 20} {
			c := read(t, g)
			if changed, err := c.Set(limit(value+5), false); err != nil || !changed || !c.Ours {
				t.Fatalf("Set(%d) = %v, %v, ours %v, want a change", value, changed, err, c.Ours)
			}
			if got := fileText(t, dir, file); got != limit(value).String() || read(t, g).Before.String() != before {
				t.Errorf("file = %s, want whole pages of %d; former value = %v, want %s", got, value, read(t, g).Before, before)
			}
			if changed, err := c.Set(limit(value), false); changed || err != nil {
				t.Errorf("Set of the same value = %v, %v, want no change", changed, err)
			}
		}
		if changed, err := restore(g, cgroup.FilePIDsMax, file); err != nil || len(changed) != 1 || fileText(t, dir, file) != before {
			t.Errorf("%s: restored %v, %v, file = %s, want %s", before, changed, err, fileText(t, dir, file), before)
		}
		if _, noted, err := g.Note(noteName(file)); noted || err != nil {
			t.Errorf("note after the restore: present = %v, %v, want false", noted, err)
		}
		if changed, err := restore(g, file); err != nil || len(changed) > 0 {
			t.Errorf("second restore changed %v, %v, want nothing", changed, err)
		}
	}
}

// A value written by another process does not count as the agent's, is not overwritten by a restore, and is the new former value.
func TestForeignValueStays(t *testing.T) {
	g, dir := tree(t, map[cgroup.LimitFile]string{file: "max\n"})
	c := read(t, g)
	if _, err := c.Set(limit(1<<20), false); err != nil {
		t.Fatal(err)
	}
	write(t, dir, file, "2097152\n")
	if changed, err := restore(g, file); err != nil || len(changed) > 0 || fileText(t, dir, file) != "2097152" {
		t.Errorf("restored %v, %v, file = %s, want nothing restored and 2097152", changed, err, fileText(t, dir, file))
	}
	c = read(t, g)
	if _, err := c.Set(limit(1<<20), false); err != nil || c.Before != limit(2<<20) {
		t.Fatalf("former value = %v, %v, want %v", c.Before, err, limit(2<<20))
	}
}

// A container that owns its cgroup's directory can write its own notes, but not those that the agent reads.
func TestNoteOfContainerIsIgnored(t *testing.T) {
	g, dir := tree(t, map[cgroup.LimitFile]string{file: "1048576\n"})
	text := []byte("max 1048576 1048576")
	if err := unix.Setxattr(dir, "user.jettison.before."+string(file), text, 0); err != nil {
		t.Skip("no extended attributes of users here: ", err)
	}
	if c, err := Read(g, file); err != nil || c.Ours || c.Before != limit(1<<20) {
		t.Errorf("control with a container's note = %+v, %v, want not ours", c, err)
	}
	if changed, err := restore(g, file); err != nil || len(changed) > 0 || fileText(t, dir, file) != "1048576" {
		t.Errorf("restored %v, %v, file = %s, want nothing restored and 1048576", changed, err, fileText(t, dir, file))
	}
	if err := unix.Setxattr(dir, "trusted.jettison.before."+string(file), text, 0); err != nil {
		t.Fatal(err)
	}
	if c, err := Read(g, file); err != nil || !c.Ours {
		t.Errorf("control with the agent's note = %+v, %v, want ours", c, err)
	}
}

// Invalid notes, or those of another version, are ignored.
func TestInvalidNotes(t *testing.T) {
	for _, text := range []string{"", "max", "0 1048576", "max 1048576 x", "-1 1048576 1048576", "max  1048576", "max 1048576" + strings.Repeat(" 0", maxFields-1),
		"99999999999999999999 1048576 1048576", strings.Repeat("9", 128), "max 1048577 4096"} {
		g, dir := tree(t, map[cgroup.LimitFile]string{file: "1048576\n"})
		if err := g.SetNote(noteName(file), text); err != nil {
			t.Fatal(err)
		}
		if c, err := Read(g, file); err != nil || c.Ours || c.Before != limit(1<<20) {
			t.Errorf("control with note %q = %+v, %v, want not ours", text, c, err)
		}
		if _, err := restore(g, file); err != nil || fileText(t, dir, file) != "1048576" {
			t.Errorf("file after a restore with note %q = %s, %v, want 1048576", text, fileText(t, dir, file), err)
		}
	}
}

// Set fails if it cannot write the note, and Read fails for a missing file.
func TestSetNeedsNote(t *testing.T) {
	g, _ := tree(t, map[cgroup.LimitFile]string{})
	if _, err := Read(g, file); !errors.Is(err, os.ErrNotExist) || errors.Is(err, cgroup.ErrVanished) {
		t.Errorf("Read of a missing file = %v, want os.ErrNotExist", err)
	}
	const proc = "/proc/self" // supports no notes
	fs, err := cgroup.OpenTree(proc)
	if err != nil {
		t.Fatal(err)
	}
	defer fs.Close()
	p, err := fs.Group("")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c := Control{group: p, File: "oom_score_adj", Now: limit(1)}
	if changed, err := c.Set(limit(2), false); err == nil || changed || !strings.Contains(err.Error(), "required before writing the file") {
		t.Errorf("Set without notes = %v, %v, want an error about the note", changed, err)
	}
}

// For any sequence of writes, crashes, restores, foreign writes, and writes of a value confirmed earlier, the final restore yields the value
// that another program wrote last. (A program that writes a value of the agent's cannot be distinguished from the agent, so foreign writes use
// other values here.)
func TestNoValueOfTheAgentStays(t *testing.T) {
	g, dir := tree(t, map[cgroup.LimitFile]string{file: "max\n"})
	rapid.Check(t, func(t *rapid.T) {
		put := func(text string) {
			if err := os.WriteFile(filepath.Join(dir, string(file)), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want := rapid.SampledFrom([]string{"max", "0", "4096"}).Draw(t, "before")
		put(want)
		if err := Forget(g, file); err != nil {
			t.Fatal(err)
		}
		confirmed, unconfirmed, noted := want, false, want
		for range rapid.IntRange(0, 10).Draw(t, "steps") {
			value := limit(4096 * rapid.Uint64Range(100, 105).Draw(t, "value"))
			c, err := Read(g, file)
			if err != nil {
				t.Fatal(err)
			}
			switch rapid.SampledFrom([]string{"set", "crash between", "restore", "confirm", "write again", "another"}).Draw(t, "step") {
			case "set":
				var changed bool
				if changed, err = c.Set(value, unconfirmed); changed {
					unconfirmed, noted = true, c.Before.String()
				}
			case "crash between":
				err = g.SetNote(noteName(file), c.note(value, unconfirmed))
				unconfirmed, noted = true, c.Before.String()
			case "restore":
				var changed bool
				changed, err = c.Restore()
				unconfirmed = unconfirmed || changed
			case "confirm": // only then the note of a restored value is removed
				if confirmed, unconfirmed = c.Now.String(), false; c.Now == c.Before {
					err = Forget(g, file)
				} else {
					err = Acknowledge(g, file)
				}
			case "write again":
				// A foreign value cannot be distinguished from a noted one.
				n, _ := cgroup.ParseLimit([]byte(confirmed))
				if confirmed == noted || !n.Unlimited && n.Bytes >= 4096*100 && n.Bytes <= 4096*105 {
					put(confirmed)
					want = noted
				}
			case "another":
				want = limit(4096 * rapid.Uint64Range(200, 1<<30).Draw(t, "foreign")).String()
				put(want)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := restore(g, file); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, string(file)))
		if err != nil || strings.TrimSpace(string(b)) != want {
			t.Fatalf("file after the restore = %s, %v, want %s", b, err, want)
		}
	})
}

// A program that has confirmed a value may write it again later. It still counts as the agent's, regardless of later writes and restores.
func TestConfirmedValueIsTheAgents(t *testing.T) {
	const before, value, confirm, back = "max", 3 << 20, 0, 1
	for _, steps := range [][]uint64{
		{value, confirm, 2 << 20}, {value, confirm, 2 << 20, 4 << 20, 5 << 20}, {value, confirm, back},
		{value, confirm, back, 2 << 20}, {value, confirm, back, 2 << 20, 4 << 20},
		{9 << 20, confirm, 8 << 20, 7 << 20, value, confirm, back, 2 << 20}, {9 << 20, confirm, 8 << 20, 7 << 20, value, confirm, 2 << 20, back, 4 << 20, back},
	} {
		g, dir := tree(t, map[cgroup.LimitFile]string{file: before + "\n"})
		unconfirmed := false
		for _, step := range steps {
			c, err := Read(g, file)
			switch step {
			case confirm:
				unconfirmed, err = false, errors.Join(err, Acknowledge(g, file))
			case back:
				_, err = c.Restore()
				unconfirmed = true
			default:
				_, err = c.Set(limit(step), unconfirmed)
				unconfirmed = true
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		write(t, dir, file, limit(value).String()+"\n")
		if c := read(t, g); !c.Ours || c.Before.String() != before {
			t.Errorf("control after steps %v = %+v, want ours with former value %s", steps, c, before)
		}
	}
}

// A program that does not answer may have received a value nevertheless. All values since the last confirmation count as the agent's, as far as
// they fit into the note, and the first and last one in any case.
func TestUnconfirmedValuesAreTheAgents(t *testing.T) {
	for steps, of := range map[int]uint64{6: 1 << 20, 40: 1 << 62} {
		g, dir := tree(t, map[cgroup.LimitFile]string{file: "max\n"})
		for i := range steps {
			c := read(t, g)
			if _, err := c.Set(limit(of+uint64(i)<<20), i > 0); err != nil {
				t.Fatal(err)
			}
			known := []int{0, i}
			for j := 1; j < i && steps == 6; j++ {
				known = append(known, j)
			}
			for _, j := range known {
				write(t, dir, file, limit(of+uint64(j)<<20).String()+"\n")
				if c := read(t, g); !c.Ours || c.Before.String() != "max" {
					t.Errorf("step %d of %d: control with value %d = %+v, want ours", i, steps, j, c)
				}
			}
			write(t, dir, file, limit(of+uint64(i)<<20).String()+"\n")
		}
	}
}

// limitText matches the kernel's text of a limit, and numbers with leading zeros.
var limitText = regexp.MustCompile(`^(max|[0-9]+)\n?$`)

// parse accepts only limits that the kernel could have reported.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"max 1048576 0", "0 0 0", "max max ", "1 2 3 4", "99999999999999999999 0 0", "-1 0 0", "max\n 1\n 2\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		before, written, ok := parse(text)
		parts := strings.Split(text, " ")
		want := len(parts) >= 3 && len(parts) <= maxFields
		for _, part := range parts {
			n, _ := new(big.Int).SetString(strings.TrimSuffix(part, "\n"), 10)
			want = want && limitText.MatchString(part) && (n == nil || n.IsUint64())
		}
		if ok != want {
			t.Fatalf("parse(%q) accepted = %v, want %v", text, ok, want)
		}
		for i, l := range append([]cgroup.Limit{before}, written...) {
			if got := strings.TrimLeft(strings.TrimSuffix(parts[min(i, len(parts)-1)], "\n"), "0"); ok && l.String() != got && (got != "" || l.Bytes != 0) {
				t.Fatalf("parse(%q) = %v, %v, want the same numbers", text, before, written)
			}
		}
	})
}
