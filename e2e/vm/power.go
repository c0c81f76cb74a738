package vm

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
)

// keptDrive is a disk with a write cache of its own, whose power can be cut. cache=writeback tells the guest of that cache, so that it
// flushes what has to stay, and QEMU answers a flush when the file has it.
//
// Killing QEMU loses three things, as a power cut does: what the guest has in its memory, of course; and of what it has written and not
// flushed every piece of 64 KiB that was never written before, for the format's tables, which say where it is, are in QEMU's memory until
// then. Such a piece is again what it was, whatever was written after it: a cache that loses power keeps no order. (What the host has in
// its page cache stays: QEMU dies, not this machine. With snapshot=on, or cache=unsafe, which ignores flushes, either nothing would be
// there again or what was flushed would be lost, too.)
func keptDrive(file string) string { return "file=" + file + ",if=virtio,format=qcow2,cache=writeback" }

// overlay makes a qcow2 file, version 3, that has nothing yet but what lies below it, a raw image (docs/interop/qcow2.txt of QEMU).
// qemu-img would do the same; it is in another package.
func overlay(file, base string) error {
	info, err := os.Stat(base)
	if err != nil {
		return err
	}
	const (
		clusterBits  = 16
		cluster      = 1 << clusterBits
		headerLength = 104
		formatMark   = 0xE2792ACA // an extension: the format of what lies below
	)
	// One table entry stands for a table of cluster/8 entries of a cluster each.
	tables := (info.Size() + cluster*cluster/8 - 1) / (cluster * cluster / 8)
	name := []byte(base)
	if tables*8 > cluster || len(name) > 1023 {
		return fmt.Errorf("%s is too large for a disk, or its path too long", base)
	}
	// Four clusters: the header, the table of reference counts, its first block, the first-level table.
	out := make([]byte, 4*cluster)
	big := binary.BigEndian
	copy(out, "QFI\xfb")
	big.PutUint32(out[4:], 3)
	nameAt := headerLength + 16 + 8 // behind the extensions: the format, and the end
	big.PutUint64(out[8:], uint64(nameAt))
	big.PutUint32(out[16:], uint32(len(name)))
	big.PutUint32(out[20:], clusterBits)
	big.PutUint64(out[24:], uint64(info.Size()))
	big.PutUint32(out[36:], uint32(tables))
	big.PutUint64(out[40:], 3*cluster)
	big.PutUint64(out[48:], cluster)
	big.PutUint32(out[56:], 1)
	big.PutUint32(out[96:], 4) // 2^4 bits for a reference count
	big.PutUint32(out[100:], headerLength)
	big.PutUint32(out[headerLength:], formatMark)
	big.PutUint32(out[headerLength+4:], 3)
	copy(out[headerLength+8:], "raw")
	copy(out[nameAt:], name)
	big.PutUint64(out[cluster:], 2*cluster)
	for i := range 4 {
		big.PutUint16(out[2*cluster+2*i:], 1)
	}
	return os.WriteFile(file, out, 0o600)
}

// CutPower ends the node as a power cut does, and boots it again from what was on its disk. It returns when the runtime answers. No pod
// runs then, and what was in memory is gone; Options.Disk says where the disk is.
func (n *Node) CutPower(ctx context.Context) error {
	if n.options.Disk == "" {
		return errors.New("cut power: the node keeps no disk")
	}
	n.Close() // SIGKILL
	n.console, n.pods = newConsole(), nil
	if err := n.powerOn(ctx, n.options, n.image); err != nil {
		return fmt.Errorf("boot node after a power cut: %w\n%s", err, n.Console())
	}
	return n.connect(ctx)
}
