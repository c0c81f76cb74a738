package cgroup

import (
	"errors"
	"math"
	"strings"
	"testing"
)

func TestParseMemoryStatOfRealKernels(t *testing.T) {
	for name, text := range recorded(t, "memory.stat") {
		var s MemoryStat
		if err := ParseMemoryStat(text, &s); err != nil {
			t.Errorf("parsing the recorded %s failed: %v", name, err)
		}
		if s.File < s.Shmem {
			t.Errorf("%s: file %d < shmem %d, which is a part of it", name, s.File, s.Shmem)
		}
	}
}

func TestParseMemoryStat(t *testing.T) {
	const whole = "anon 1\nfile 2\nkernel 7\nshmem 3\ninactive_file 4\n"
	for _, c := range []struct {
		name, text string
		want       MemoryStat
		malformed  bool
	}{
		{"all", whole, MemoryStat{Anon: 1, File: 2, Shmem: 3, InactiveFile: 4}, false},
		{"unknown keys are skipped, whatever they hold", "new_one abc def\n" + whole + "other\n", MemoryStat{1, 2, 3, 4}, false},
		{"no newline at the end", strings.TrimSuffix(whole, "\n"), MemoryStat{1, 2, 3, 4}, false},
		{"a key that nobody asks for is missing", strings.Replace(whole, "kernel 7\n", "", 1), MemoryStat{1, 2, 3, 4}, false},
		{"a needed key is missing", strings.Replace(whole, "anon 1\n", "", 1), MemoryStat{}, true},
		{"any order", "inactive_file 4\nshmem 3\nfile 2\nanon 1\n", MemoryStat{1, 2, 3, 4}, false},
		{"keys that start alike", "anon_thp 9\nfile_mapped 9\nshmem_thp 9\ninactive_file2 9\ninactive_anon 9\n\n" + whole, MemoryStat{1, 2, 3, 4}, false},
		{"what follows the last needed key is not looked at", whole + "anon x\n", MemoryStat{1, 2, 3, 4}, false},
		{"a known key at the very end", "anon 1\nfile 2\nshmem 3\ninactive_file", MemoryStat{}, true},
		{"two spaces", strings.Replace(whole, "anon 1", "anon  1", 1), MemoryStat{}, true},
		{"empty", "", MemoryStat{}, true},
		{"a known key without a value", strings.Replace(whole, "anon 1", "anon", 1), MemoryStat{}, true},
		{"a known key with a word", strings.Replace(whole, "anon 1", "anon x", 1), MemoryStat{}, true},
		{"a negative number", strings.Replace(whole, "anon 1", "anon -1", 1), MemoryStat{}, true},
		{"a number beyond 64 bits", strings.Replace(whole, "anon 1", "anon 18446744073709551616", 1), MemoryStat{}, true},
		{"the largest number", strings.Replace(whole, "anon 1", "anon 18446744073709551615", 1), MemoryStat{math.MaxUint64, 2, 3, 4}, false},
	} {
		var got MemoryStat
		err := ParseMemoryStat([]byte(c.text), &got)
		if c.malformed != errors.Is(err, ErrMalformed) || !c.malformed && (err != nil || got != c.want) {
			t.Errorf("ParseMemoryStat with %s returned %+v with error %v", c.name, got, err)
		}
	}
}

func TestParseMemoryDetail(t *testing.T) {
	const text = "future 1 2\nanon 1\nfile 2\nshmem 3\ninactive_file 4\nkernel_stack 5\nkernel 70\nsock 8\nslab_reclaimable 9\nfile_dirty 10\nfile_writeback 11\npgmajfault 0\nworkingset_restore_file x\nworkingset_refault_file 6\n"
	var d MemoryDetail
	if err := ParseMemoryDetail([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	want := MemoryDetail{MemoryStat: MemoryStat{1, 2, 3, 4}, KernelStack: 5, Kernel: 70, Sock: 8, SlabReclaimable: 9, FileDirty: 10, FileWriteback: 11, RefaultFile: 6,
		HasPgMajFault: true, HasRefaults: true, HasKernel: true} // absent is not zero
	if d != want {
		t.Errorf("parsed memory detail = %+v, want %+v", d, want)
	}
	for _, bad := range []string{"", "anon 1\nfile 2\nshmem 3\n", text + "pgfault\n", text + "pagetables x\n", text + "workingset_refault_anon x\n", text + "anon 1.5\n"} {
		if err := ParseMemoryDetail([]byte(bad), &d); !errors.Is(err, ErrMalformed) {
			t.Errorf("parsing malformed %q: error %v, want ErrMalformed", bad, err)
		}
	}
}

// Every key that this package knows is spelled as in the recorded kernels.
func TestMemoryDetailOfRealKernels(t *testing.T) {
	for name, text := range recorded(t, "memory.stat") {
		var d MemoryDetail
		if err := ParseMemoryDetail(text, &d); err != nil {
			t.Errorf("parsing the recorded %s failed: %v", name, err)
		}
		if !d.HasPgFault || !d.HasPgMajFault {
			t.Errorf("recorded %s lacks a known key: %+v", name, d)
		}
		var s MemoryStat
		if err := ParseMemoryStat(text, &s); err != nil || s != d.MemoryStat {
			t.Errorf("recorded %s: MemoryStat %+v (error %v) differs from MemoryDetail's %+v", name, s, err, d.MemoryStat)
		}
		for field, dst := range map[string]uint64{"kernel_stack": d.KernelStack, "pagetables": d.PageTables, "pgfault": d.PgFault, "pgmajfault": d.PgMajFault} {
			if want := value(t, text, field); dst != want {
				t.Errorf("recorded %s: field %s = %d, want %d", name, field, dst, want)
			}
		}
	}
}

func TestParseMemoryEvents(t *testing.T) {
	const old = "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\n"
	for text, want := range map[string]MemoryEvents{
		old: {1, 2, 3, 4, 5, 0}, // before v5.17
		"sock_throttled 9\n" + old + "oom_group_kill 6\n": {1, 2, 3, 4, 5, 6},
	} {
		if got, err := ParseMemoryEvents([]byte(text)); err != nil || got != want {
			t.Errorf("ParseMemoryEvents of %q returned %+v with error %v", text, got, err)
		}
	}
	for _, text := range []string{"", "low 1\nhigh 2\nmax 3\noom 4\n", old + "oom_group_kill x\n", old + "max\n"} {
		if got, err := ParseMemoryEvents([]byte(text)); !errors.Is(err, ErrMalformed) || got != (MemoryEvents{}) {
			t.Errorf("ParseMemoryEvents of malformed %q = %+v, error %v, want ErrMalformed", text, got, err)
		}
	}
}

func BenchmarkParseMemoryStat(b *testing.B) {
	text := recorded(b, "memory.stat")["6.12/cgroup/kubepods/memory.stat"]
	b.ReportAllocs()
	for b.Loop() {
		var s MemoryStat
		if err := ParseMemoryStat(text, &s); err != nil {
			b.Fatal(err)
		}
	}
}
