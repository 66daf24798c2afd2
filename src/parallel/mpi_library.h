// MPI, loaded at run time when it is used, since runs on one host do not need it. Types and
// constants are those of OpenMPI's mpi.h (PENSTOCK_MPI is defined when the build has found it);
// functions are looked up by name in libmpi.so.40.
#pragma once
#define OMPI_SKIP_MPICXX 1  // without the C++ bindings that MPI has removed
#include <mpi.h>

#include "base/result.h"

namespace penstock {

struct MpiLibrary {
  // The functions that are used, by their MPI names.
  decltype(&MPI_Init_thread) init_thread;
  decltype(&MPI_Finalize) finalize;
  decltype(&MPI_Comm_rank) comm_rank;
  decltype(&MPI_Comm_size) comm_size;
  decltype(&MPI_Comm_dup) comm_dup;
  decltype(&MPI_Comm_split) comm_split;
  decltype(&MPI_Comm_set_errhandler) comm_set_errhandler;
  decltype(&MPI_Error_string) error_string;
  decltype(&MPI_Iallgather) iallgather;
  decltype(&MPI_Ialltoall) ialltoall;
  decltype(&MPI_Ibcast) ibcast;
  decltype(&MPI_Ibarrier) ibarrier;
  decltype(&MPI_Test) test;
  decltype(&MPI_Isend) isend;
  decltype(&MPI_Recv) recv;
  decltype(&MPI_Irecv) irecv;
  decltype(&MPI_Iprobe) iprobe;
  decltype(&MPI_Get_count) get_count;
  decltype(&MPI_Request_free) request_free;

  MPI_Comm world;
  MPI_Datatype bytes;
  MPI_Errhandler errors_return;
};

// Loads MPI and initializes it for threads that call it one at a time (MPI_THREAD_SERIALIZED). It
// is finalized when the program ends, unless leave_mpi() was called. Errors: kUnsupported.
Result<const MpiLibrary*> enter_mpi();
// Makes the program end without MPI_Finalize, which waits for the other ranks; for a run that has
// failed.
void leave_mpi();

}  // namespace penstock
