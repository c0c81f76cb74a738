package main

import (
	"flag"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// stamp repeatedly writes the time to stdout, in nanoseconds of CLOCK_MONOTONIC: the distance of
// two lines is how long the process, and so all similar ones, had to wait. A line is one write,
// without allocation. A file has the last time that was written to stdout.
func stamp(args []string) error {
	f := flag.NewFlagSet("stamp", flag.ContinueOnError)
	every := f.Duration("every", 10*time.Millisecond, "")
	name := f.String("file", "", "")
	if err := f.Parse(args); err != nil {
		return err
	}
	var file *os.File
	if *name != "" {
		var err error
		if file, err = os.Create(*name); err != nil {
			return err
		}
	}
	var now unix.Timespec
	var line [32]byte
	for {
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return err
		}
		text := append(strconv.AppendInt(line[:0], now.Nano(), 10), '\n')
		if _, err := os.Stdout.Write(text); err != nil {
			return err
		}
		if file != nil {
			if _, err := file.WriteAt(text, 0); err != nil {
				return err
			}
		}
		time.Sleep(*every)
	}
}
