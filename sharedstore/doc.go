// Package sharedstore lets several processes of one machine share the store in one folder.
//
// The first process opens the store itself and owns it; it serves the others over a Unix socket in the folder. When
// the owner goes, by kill -9 too, the kernel drops the store's lock and ends the connections: one of the others takes
// the store over and the rest connect to it. Callers notice nothing but a pause. A request whose answer did not come is
// sent to the next owner; a write carries the same token, so that it is applied once. No stale file needs a person: only
// the holder of the lock binds the socket, over whatever lies there, and binds it anew when it was removed.
//
// The folder holds, besides what the store keeps there:
//
//	toolguard.sock  the socket (mode 0600); peers of another user are refused
//	SOCKET          where the socket is, if the folder's path is too long for one: a folder of this user's own under
//	                $XDG_RUNTIME_DIR or the system's folder for temporary files
//	processes/      a file for each process, locked as long as it lives: that, and nothing else, tells the dead from
//	                the living; the owner removes the files of the dead once what they left is settled
//
// A frozen owner (SIGSTOP) keeps its lock, so nobody can take over. The calls of the others then fail after the limit
// with toolguard.ErrStoreAway, the guard calls no tool, and all goes on when the owner wakes; what was sent to it
// meanwhile is then done all the same, so whether such a write was made is not known. A frozen process that is not the
// owner is alive, and what it has on its way stays its own; when it wakes, the revisions in its writes tell the store
// what they were decided on, and stale ones are refused.
//
// Programs of different versions do not share a folder, unless they exchange the very same members of the same types:
// the second one says so (ErrVersion) and ends.
package sharedstore
