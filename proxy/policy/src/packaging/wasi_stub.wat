;; WASI preview 1 as a policy has it: nothing is there, and everything is the same at each run. Compilers for whom there is no
;; other system (Go's) import it; linked with this, a policy imports none of it. Nothing here is copied to or from the host.
;; Lines that begin with ";;debug" are there where a policy is built for debugging: what it prints is said to its author.
(module
  (import "env" "memory" (memory 0))
  ;;debug (import "lockwarden:debug/output@1.0.0" "say" (func $say (param i32 i32)))

  ;; No arguments and no environment.
  (func $none (param $count i32) (param $size i32) (result i32)
    (i32.store (local.get $count) (i32.const 0))
    (i32.store (local.get $size) (i32.const 0))
    (i32.const 0))
  (export "args_sizes_get" (func $none))
  (export "environ_sizes_get" (func $none))
  (func $nothing (param i32 i32) (result i32) (i32.const 0))
  (export "args_get" (func $nothing))
  (export "environ_get" (func $nothing))

  ;; A clock that goes on by a microsecond each time that it is read.
  (global $now (mut i64) (i64.const 1000000000))
  (func (export "clock_time_get") (param $clock i32) (param $precision i64) (param $time i32) (result i32)
    (global.set $now (i64.add (global.get $now) (i64.const 1000)))
    (i64.store (local.get $time) (global.get $now))
    (i32.const 0))
  (func (export "clock_res_get") (param $clock i32) (param $resolution i32) (result i32)
    (i64.store (local.get $resolution) (i64.const 1000))
    (i32.const 0))

  ;; Random bytes that are not.
  (func (export "random_get") (param $buffer i32) (param $length i32) (result i32)
    (memory.fill (local.get $buffer) (i32.const 0x5a) (local.get $length))
    (i32.const 0))

  ;; What is written is taken, and gone.
  (func (export "fd_write") (param $fd i32) (param $vector i32) (param $count i32) (param $written i32) (result i32)
    (local $sum i32)
    (block $done
      (loop $next
        (br_if $done (i32.eqz (local.get $count)))
        ;;debug (call $say (i32.load (local.get $vector)) (i32.load offset=4 (local.get $vector)))
        (local.set $sum (i32.add (local.get $sum) (i32.load offset=4 (local.get $vector))))
        (local.set $vector (i32.add (local.get $vector) (i32.const 8)))
        (local.set $count (i32.sub (local.get $count) (i32.const 1)))
        (br $next)))
    (i32.store (local.get $written) (local.get $sum))
    (i32.const 0))

  ;; Who waits has waited: one event, which is the first.
  (func (export "poll_oneoff") (param $subscriptions i32) (param $events i32) (param $count i32) (param $stored i32) (result i32)
    (memory.fill (local.get $events) (i32.const 0) (i32.const 32))
    (i64.store (local.get $events) (i64.load (local.get $subscriptions)))
    (i32.store (local.get $stored) (i32.const 1))
    (i32.const 0))
  (func (export "sched_yield") (result i32) (i32.const 0))

  ;; The end of the program is the end of the policy: a trap.
  (func (export "proc_exit") (param i32) unreachable)
  (func (export "proc_raise") (param i32) (result i32) unreachable)

  ;; No files, folders and sockets: 8 is EBADF.
  (func $no_i (param i32) (result i32) (i32.const 8))
  (export "fd_close" (func $no_i))
  (export "fd_datasync" (func $no_i))
  (export "fd_sync" (func $no_i))
  (func $no_ii (param i32 i32) (result i32) (i32.const 8))
  (export "fd_fdstat_get" (func $no_ii))
  (export "fd_fdstat_set_flags" (func $no_ii))
  (export "fd_filestat_get" (func $no_ii))
  (export "fd_prestat_get" (func $no_ii))
  (export "fd_renumber" (func $no_ii))
  (export "fd_tell" (func $no_ii))
  (export "sock_shutdown" (func $no_ii))
  (func $no_iii (param i32 i32 i32) (result i32) (i32.const 8))
  (export "fd_prestat_dir_name" (func $no_iii))
  (export "path_create_directory" (func $no_iii))
  (export "path_remove_directory" (func $no_iii))
  (export "path_unlink_file" (func $no_iii))
  (export "sock_accept" (func $no_iii))
  (func $no_iiii (param i32 i32 i32 i32) (result i32) (i32.const 8))
  (export "fd_read" (func $no_iiii))
  (func $no_iiiii (param i32 i32 i32 i32 i32) (result i32) (i32.const 8))
  (export "path_filestat_get" (func $no_iiiii))
  (export "path_symlink" (func $no_iiiii))
  (export "sock_send" (func $no_iiiii))
  (func $no_iiiiii (param i32 i32 i32 i32 i32 i32) (result i32) (i32.const 8))
  (export "path_readlink" (func $no_iiiiii))
  (export "path_rename" (func $no_iiiiii))
  (export "sock_recv" (func $no_iiiiii))
  (func (export "path_link") (param i32 i32 i32 i32 i32 i32 i32) (result i32) (i32.const 8))
  (func (export "fd_fdstat_set_rights") (param i32 i64 i64) (result i32) (i32.const 8))
  (func (export "fd_filestat_set_size") (param i32 i64) (result i32) (i32.const 8))
  (func (export "fd_filestat_set_times") (param i32 i64 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_advise") (param i32 i64 i64 i32) (result i32) (i32.const 8))
  (func (export "fd_allocate") (param i32 i64 i64) (result i32) (i32.const 8))
  (func $no_iiiIi (param i32 i32 i32 i64 i32) (result i32) (i32.const 8))
  (export "fd_pread" (func $no_iiiIi))
  (export "fd_pwrite" (func $no_iiiIi))
  (export "fd_readdir" (func $no_iiiIi))
  (func (export "fd_seek") (param i32 i64 i32 i32) (result i32) (i32.const 8))
  (func (export "path_filestat_set_times") (param i32 i32 i32 i32 i64 i64 i32) (result i32) (i32.const 8))
  (func (export "path_open") (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32) (i32.const 8)))
