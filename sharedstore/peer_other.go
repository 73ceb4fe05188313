//go:build !linux

package sharedstore

import "net"

// checkPeer leaves it to the modes of the socket and its folder to keep other users out.
func checkPeer(net.Conn) error { return nil }
