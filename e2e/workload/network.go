package main

import (
	"errors"
	"flag"
	"io"
	"net"
	"time"
)

// network is one end of a TCP connection: the listener, which discards its input, or the sender.
func network(args []string) error {
	f := flag.NewFlagSet("net", flag.ContinueOnError)
	listen, to := f.String("listen", "", ""), f.String("to", "", "")
	amount := size(1 << 20)
	f.Var(&amount, "send", "")
	if err := f.Parse(args); err != nil {
		return err
	}
	switch {
	case *listen != "":
		return discard(*listen)
	case *to != "":
		return send(int64(amount), *to)
	}
	return errors.New("want -listen or -to")
}

func discard(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(io.Discard, conn) // the sender reports an incomplete transfer
		}()
	}
}

func send(amount int64, address string) error {
	conn, err := dialRetrying(address, time.Minute)
	if err != nil {
		return err
	}
	block := make([]byte, 64<<10)
	for left := amount; left > 0; {
		n, err := conn.Write(block[:min(left, int64(len(block)))])
		if err != nil {
			return err
		}
		left -= int64(n)
	}
	if err := conn.Close(); err != nil {
		return err
	}
	select {}
}

// dialRetrying waits for the other end, which may be started later.
func dialRetrying(address string, limit time.Duration) (net.Conn, error) {
	for deadline := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil || time.Now().After(deadline) {
			return conn, err
		}
	}
}
